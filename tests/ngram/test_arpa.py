"""ARPA files: there and back again, those of other tools and people, and those that are wrong."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.arpa_model import arpa_model, arpa_table, write_arpa
from lmtool.ngram.files.arpa_read import read_arpa
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.smoothers.relative_frequencies import MaximumLikelihood, StupidBackoff
from lmtool.ngram.tables.backoff import BackoffTable
from tests.conftest import Run
from tests.ngram.plain import contexts_for, random_sentences, text_of


def made(n: int, smoother: object = None) -> tuple[BackoffTable, Vocabulary]:
    text, vocabulary = text_of([*random_sentences(0, 80), "caf\u00e9 na\u00efve \u4e2d\u6587"])
    return estimate(count_ngrams(text, vocabulary, n), smoother or ModifiedKneserNey(n)), vocabulary


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_there_and_back_again(n: int, name: str, tmp_path: Path) -> None:
    table, vocabulary = made(n)
    write_arpa(table, vocabulary, tmp_path / name)
    again = arpa_table(read_arpa(str(tmp_path / name)), vocabulary)
    assert again.sizes == table.sizes and again.suffix_closed
    assert np.array_equal(again.log_prob, table.log_prob) and np.array_equal(again.log_backoff, table.log_backoff)
    assert all(np.array_equal(a, b) for a, b in zip(again.trie.nodes, table.trie.nodes, strict=True))
    assert (again.unseen, again.missing, again.normalized) == (table.unseen, table.missing, table.normalized)


def test_other_forms_there_and_back_again(tmp_path: Path) -> None:
    pruned, vocabulary = made(4)
    pruned = prune_by_entropy(pruned, 1e-3, vocabulary)
    for table in (pruned, made(3, MaximumLikelihood(3))[0]):
        write_arpa(table, vocabulary, tmp_path / "model.arpa")
        again = arpa_table(read_arpa(str(tmp_path / "model.arpa")), vocabulary)
        assert np.array_equal(again.log_prob, table.log_prob) and np.array_equal(again.log_backoff, table.log_backoff)
        assert again.suffix_closed == table.suffix_closed == (table is not pruned)
        contexts = contexts_for(text_of(random_sentences(0, 80))[0], vocabulary, table.order, 1)
        ours, theirs = (NgramModel(each, vocabulary).log_dist(contexts) for each in (again, table))
        assert np.array_equal(ours, theirs)


PRUNED = """\\data\\
ngram 1=4
ngram 2=3
ngram 3=2

\\1-grams:
-0.5 a -0.1
-0.5 b -0.2
-0.6 c -0.3
-99 <s> 0

\\2-grams:
-0.4 a b -0.15
-0.3 b a -0.25
-0.35 c a

\\3-grams:
-0.2 a b c
-0.1 b a b

\\end\\
"""


@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_ngrams_without_their_suffixes_by_hand(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The file has a b c but not b c, as after pruning: c after a b still has the probability of a b c.
    for module in ("arpa_model", "arpa_read"):
        monkeypatch.setattr(f"lmtool.ngram.files.{module}.NGRAMS_PER_PIECE", piece)
    (tmp_path / "pruned.arpa").write_text(PRUNED)
    vocabulary = Vocabulary(("a", "b", "c", "<unk>"), np.ones(4, dtype=np.int64), None, 3)
    table = arpa_table(read_arpa(str(tmp_path / "pruned.arpa")), vocabulary)
    assert not table.suffix_closed
    a, b, c = 0, 1, 2
    contexts, targets = np.array([[a, b], [b, a], [c, b], [a, b], [c, a]]), np.array([c, b, c, a, c])
    want = [-0.2, -0.1, -0.2 - 0.6, -0.15 - 0.3, -0.1 - 0.6]
    model = NgramModel(table, vocabulary)
    np.testing.assert_allclose(model.log_prob(contexts, targets) / math.log(10), want, rtol=1e-6)
    dist = model.log_dist(contexts)[np.arange(5), targets]
    np.testing.assert_allclose(dist / math.log(10), want, rtol=1e-6)
    text = np.array([a, b, c])
    np.testing.assert_allclose(
        model.log_prob_text(text, np.array([0, 3])) / math.log(10), [-0.5, -0.4, -0.2], rtol=1e-6
    )


def test_stupid_backoff_by_hand(tmp_path: Path) -> None:
    # Of a b, a b, a c. S(b | <s> a) = 2/3 and S(a | b) = 0.4 (3/9), with b </s> seen and b a not; after c b, which was
    # not seen, 0.4 S(</s> | b) = 0.4. Other tools give c b the weight 1, so that b </s> must have 0.4 at once, a 0.16.
    text, vocabulary = text_of(["a b", "a b", "a c"])
    write_arpa(
        estimate(count_ngrams(text, vocabulary, 3), StupidBackoff(3, alpha=0.4)), vocabulary, tmp_path / "s.arpa"
    )
    lines = dict(line.split("\t")[1::-1] for line in (tmp_path / "s.arpa").read_text().splitlines() if "\t" in line)
    assert {name: 10 ** float(lines[name]) for name in ("<s> a b", "b </s>", "a", "<s> a")} == pytest.approx(
        {"<s> a b": 2 / 3, "b </s>": 0.4, "a": 0.16 * 3 / 9, "<s> a": 1}
    )
    weights = [line.split("\t")[2] for line in (tmp_path / "s.arpa").read_text().splitlines() if line.count("\t") == 2]
    # 1 except for <s>: it is read with one factor 0.4 fewer than the later words.
    assert sorted(10 ** float(weight) for weight in weights) == pytest.approx([1] * (len(weights) - 1) + [2.5])
    table = arpa_table(read_arpa(str(tmp_path / "s.arpa")), vocabulary)
    assert table.missing == 0 and not table.normalized
    a, b, c, eos, bos = 0, 1, 2, 3, 5
    contexts = np.array([[bos, a], [a, b], [c, b], [c, b], [bos, bos], [bos, bos]])
    found = NgramModel(table, vocabulary).log_prob(contexts, np.array([b, a, eos, a, a, c]))
    np.testing.assert_allclose(np.exp(found), [2 / 3, 0.16 / 3, 0.4, 0.16 / 3, 1, 0.4 / 9], rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_stupid_backoff_as_other_tools_read_it(n: int, tmp_path: Path) -> None:
    text, vocabulary = text_of(random_sentences(0, 40))
    table = estimate(count_ngrams(text, vocabulary, n), StupidBackoff(n, alpha=0.4))
    write_arpa(table, vocabulary, tmp_path / "model.arpa")
    other = NgramModel(arpa_table(read_arpa(str(tmp_path / "model.arpa")), vocabulary), vocabulary)
    contexts = contexts_for(text, vocabulary, n, seed=n)
    ours, theirs = NgramModel(table, vocabulary).log_dist(contexts), other.log_dist(contexts)
    with np.errstate(invalid="ignore"):
        factors = np.nan_to_num(theirs - ours) / math.log(0.4)  # how many 0.4 too many
    np.testing.assert_allclose(factors, np.round(factors), atol=1e-5)
    # None up to order 3, where <s> alone is always in the table. At order 5 a sentence that begins with one word or two
    # in an unseen way has n - 3 or n - 4.
    words = (contexts != vocabulary.bos).sum(axis=1)
    for k in range(n):
        found = set(np.round(factors[words == k]).ravel().tolist())
        assert found == ({0, n - 2 - k} if n == 5 and k in (1, 2) else {0})


def test_numbers_of_any_size_come_back(tmp_path: Path) -> None:
    table, vocabulary = made(2)
    rng = np.random.default_rng(0)
    log_prob = -(10 ** rng.uniform(-12, 1.9, len(table.log_prob))).astype(np.float32)
    log_prob[:3] = [-0.0, -np.inf, -1.0]
    log_prob[vocabulary.bos] = -np.inf
    backoff = (rng.choice([-1, 1], len(table.log_backoff)) * 10 ** rng.uniform(-9, 1, len(table.log_backoff))).astype(
        "f4"
    )
    table = replace(table, log_prob=log_prob, log_backoff=backoff)
    write_arpa(table, vocabulary, tmp_path / "model.arpa")
    again = arpa_table(read_arpa(str(tmp_path / "model.arpa")), vocabulary)
    # Eighteen digits after the point: below 1e-9 fewer than nine of them count.
    np.testing.assert_allclose(again.log_prob, log_prob, rtol=1e-7, atol=1e-17)
    assert np.array_equal(again.log_prob[log_prob < -1e-8], log_prob[log_prob < -1e-8])
    assert np.array_equal(again.log_backoff[abs(backoff) > 1e-8], backoff[abs(backoff) > 1e-8])


SRILM = """
\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-0.7\t</s>
-99\t<s>\t-0.3
-0.5 a -0.2
-1.25e0\tb\t0
-inf\tc

\\2-grams:
-0.1\t<s> a\t0.05
-0.4\ta b
-0.6\tb </s>

\\3-grams:
-0.2\t<s> a b

\\end\\
"""
WORDS = Vocabulary(("a", "b", "c", "</s>", "<unk>", "<s>"), np.ones(6, int), 3, 4)


def test_a_file_of_another_tool_by_hand(tmp_path: Path) -> None:
    (tmp_path / "other.arpa").write_text(SRILM)
    table = arpa_table(read_arpa(str(tmp_path / "other.arpa")), WORDS)
    model = NgramModel(table, WORDS)
    a, b, c, eos, unk, bos = range(6)
    contexts = np.array([[bos, bos], [bos, a], [bos, a], [a, b], [c, a], [bos, b]])
    targets = np.array([a, b, eos, a, unk, c])
    # <s> a; <s> a b; backoff(<s> a) + backoff(a) + </s>; a b has no weight, backoff(b) + a; <unk> and c are not there.
    want = [-0.1, -0.2, 0.05 - 0.2 - 0.7, 0 + 0 - 0.5, -math.inf, -math.inf]
    np.testing.assert_allclose(model.log_prob(contexts, targets) / math.log(10), want, rtol=1e-6)


BAD = {
    "cut off in a section": (SRILM[: SRILM.index("-0.6")], ["ends after line 16", "cut off"]),
    "cut off in the counts": ("\\data\\\nngram 1=5\n", ["ends after line 2", "cut off"]),
    "no ARPA": ("some text\nand more\n", ["is not an ARPA file", "no \\data\\ in its first 2 lines"]),
    "long text": ("a b\n" * 2000, ["is not an ARPA file", "first 1,001 lines"]),
    "fewer than told": (
        SRILM.replace("ngram 2=3", "ngram 2=4"),
        ["line 19", "the 2-grams end after 3", "there are 4 by the counts"],
    ),
    "more than told": (SRILM.replace("ngram 2=3", "ngram 2=2"), ["line 17", "the 2-grams should end here"]),
    "fewer words than told": (SRILM.replace("ngram 1=5", "ngram 1=6"), ["line 14", "the 1-grams end after 5"]),
    "more words than told": (SRILM.replace("ngram 1=5", "ngram 1=4"), ["line 12", "the 1-grams should end here"]),
    "twice": (SRILM.replace("-0.6\tb </s>", "-0.6\ta b"), ["line 17", "also in line 16"]),
    "a word twice": (SRILM.replace("-inf\tc", "-1\ta"), ["line 12", "'a' is also in line 10"]),
    "without its first words": (SRILM.replace("<s> a b\n", "a a b\n"), ["line 20", "'a a' is not among the 2-grams"]),
    "positive": (SRILM.replace("-0.4\ta b", "0.4\ta b"), ["line 16", "positive log10 p"]),
    "positive word": (SRILM.replace("-0.5 a", "0.5 a"), ["line 10", "positive log10 p"]),
    "no number": (SRILM.replace("-0.4\ta b", "much\ta b"), ["line 16", "a number"]),
    "no number of a word": (SRILM.replace("-0.5 a", "x a"), ["line 10", "a number"]),
    "few words": (SRILM.replace("-0.4\ta b", "-0.4\ta"), ["line 16", "fewer words"]),
    "many words": (SRILM.replace("-0.4\ta b", "-0.4\ta b c"), ["line 16", "more than its words"]),
    "unknown word": (SRILM.replace("-0.4\ta b", "-0.4\ta x"), ["line 16", "not among the 1-grams"]),
    "no end": (SRILM.replace("\\end\\", "\\4-grams:"), ["line 22", "\\end\\"]),
    "sections out of order": (SRILM.replace("\\2-grams:", "\\3-grams:"), ["line 14", "\\2-grams:"]),
    "counts out of order": (SRILM.replace("ngram 2", "ngram 4"), ["line 4", "ngram 2=COUNT"]),
    "a damaged comment": ("# lmtool {broken\n" + SRILM, ["line 1", "lmtool's comment is damaged"]),
    "a comment of another kind": ("# lmtool []\n" + SRILM, ["line 1", "lmtool's comment is damaged"]),
    "a comment with a wrong value": ('# lmtool {"unseen": [1]}\n' + SRILM, ["line 1", "lmtool's comment is damaged"]),
    "a word outside the vocabulary": (SRILM.replace("\tc", "\tx"), ["line 12", "'x' is not in the vocabulary"]),
    "no orders": ("\\data\\\n\n\\end\\\n", ["0 orders"]),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_are_wrong(name: str, tmp_path: Path) -> None:
    content, words = BAD[name]
    path = tmp_path / "bad.arpa"
    path.write_bytes(content.encode())
    with pytest.raises(UserError) as caught:
        arpa_table(read_arpa(str(path)), WORDS)
    said = str(caught.value)
    assert "bad.arpa" in said and "\n" not in said and "write the file again" not in said
    for word in words:
        assert word in said, said


def test_lines_that_end_in_cr_lf(tmp_path: Path) -> None:
    files = {"lf": SRILM, "crlf": SRILM.replace("\n", "\r\n"), "one": SRILM.replace(" b\n", " b\r\n")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode())
    plain, *others = (arpa_table(read_arpa(str(tmp_path / name)), WORDS) for name in files)
    for table in others:
        assert np.array_equal(table.log_prob, plain.log_prob) and np.array_equal(table.log_backoff, plain.log_backoff)
        assert all(np.array_equal(a, b) for a, b in zip(table.trie.nodes, plain.trie.nodes, strict=True))
    (tmp_path / "bad").write_bytes(SRILM.replace("-0.4\ta b", "-0.4\ta x").replace("\n", "\r\n").encode())
    with pytest.raises(UserError, match="line 16: has a word that is not among the 1-grams; correct the file there"):
        read_arpa(str(tmp_path / "bad"))


SRILM_3 = """\\data\\
ngram 1=4
ngram 2=2
ngram 3=1

\\1-grams:
-0.5 </s>
-99 <s> -0.1
-0.3 a -0.2
-0.7 b

\\2-grams:
-0.3 <s> a -0.4
-0.2 a b

\\3-grams:
-0.1 <s> a b

\\end\\
"""


@pytest.mark.parametrize("n", [1, 3])
def test_counts_that_promise_more_than_there_is_take_no_memory(n: int, tmp_path: Path) -> None:
    path = tmp_path / "lies.arpa"
    path.write_text(re.sub(rf"ngram {n}=(\d+)", f"ngram {n}=999999999999999999", SRILM_3))
    with pytest.raises(UserError, match=rf"the {n}-grams end after \d, but there are 999,999,999,999,999,999"):
        read_arpa(str(path))
    path.write_text(re.sub(rf"ngram {n}=\d+", f"ngram {n}={'9' * 5000}", SRILM_3))
    with pytest.raises(UserError, match=f"should be ngram {n}=COUNT"):
        read_arpa(str(path))


ODD = {
    "an underscore in a number": ("-0.7 b", "-0.7_1 b", "line 10: should begin with log10 p"),
    "a digit of another script": ("-0.7 b", "-\uff11 b", "line 10: should begin with log10 p"),
    "infinity": ("-0.7 b", "-infinity b", "line 10: should begin with log10 p"),
    "an infinite weight": ("-0.3 a -0.2", "-0.3 a inf", "line 9: should begin with log10 p"),
    "a huge weight of a 1-gram": ("-0.3 a -0.2", "-0.3 a 1e39", "line 9: has a log10 back-off weight above 99"),
    "a huge weight of a 2-gram": ("a -0.4", "a 99.5", "line 13: has a log10 back-off weight above 99"),
    "a deep comment": ("\\data", "# lmtool " + "[" * 100_000 + "\n\\data", "line 1: lmtool's comment is damaged"),
    "a large number there": ("\\data", '# lmtool {"unseen": -1' + "0" * 400 + "}\n\\data", "comment is damaged"),
    "a positive one": ("\\data", '# lmtool {"unseen": 0.5}\n\\data', "comment is damaged"),
    "one that is none": ("\\data", '# lmtool {"unseen": NaN}\n\\data', "comment is damaged"),
}


@pytest.mark.parametrize("name", ODD)
def test_numbers_that_are_none(name: str, tmp_path: Path) -> None:
    right, wrong, said = ODD[name]
    assert right in SRILM_3
    path = tmp_path / "odd.arpa"
    path.write_text(SRILM_3.replace(right, wrong, 1), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        read_arpa(str(path))


def test_words_with_white_space_that_is_not_ascii(tmp_path: Path) -> None:
    path = tmp_path / "a.arpa"
    path.write_text(SRILM_3.replace(" b", " b\u00a0\u2028c"), encoding="utf-8")
    arpa = read_arpa(str(path))
    assert arpa.words == ["</s>", "<s>", "a", "b\u00a0\u2028c"] and arpa.grams[1][0].tolist() == [[1, 2], [2, 3]]


UNIGRAMS = "\\data\\\nngram 1=4\n\n\\1-grams:\n-0.5 </s>\n-99 <s>\n-0.3 a\n-0.7 b\n\n\\end\\\n"


@pytest.mark.parametrize(("b", "normalized"), [("-0.74", True), ("-0.7", False), ("-0.3", False), ("-99", False)])
def test_one_grams_that_do_not_sum_to_one_give_scores(b: str, normalized: bool, tmp_path: Path) -> None:
    """Check sums: 10^-0.5 + 10^-0.3 is 0.8174; b's 10^-0.7 is 0.1995, 1.0169 in all; so -0.74, 0.1820, makes 0.9994."""
    path = tmp_path / "a.arpa"
    path.write_text(UNIGRAMS.replace("-0.7 b", f"{b} b"))
    vocabulary = Vocabulary(("a", "b", "</s>", "<unk>", "<s>"), np.ones(5, int), 2, 3)
    assert arpa_table(read_arpa(str(path)), vocabulary).normalized is normalized


def test_ends_of_sentences_where_the_vocabulary_has_none(tmp_path: Path) -> None:
    stream = Vocabulary(("a", "b", "<unk>", "<s>"), np.zeros(4, dtype=np.int64), None, 2)
    grams = (
        "-0.6\t<s>\t0\n-0.6\t</s>\n-0.6\t<unk>\n-0.6\ta\t-0.1\n-0.6\tb\t-0.1\n\n\\2-grams:\n-0.3\ta b\n-0.3\tb </s>\n"
    )
    (tmp_path / "a.arpa").write_text(f"\\data\\\nngram 1=5\nngram 2=2\n\n\\1-grams:\n{grams}\n\\end\\\n")
    with pytest.raises(UserError, match=r"a\.arpa, line 14: </s> ends sentences: leave out data\.sentences=false"):
        arpa_table(read_arpa(str(tmp_path / "a.arpa")), stream)


PLAIN = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-0.5\t</s>
-99\t<s>\t-0.1
-0.3\ta\t-0.2
-0.7\tb\t0

\\2-grams:
-0.25\t<s> a
-0.4\ta b

\\end\\
"""
LAYOUTS = {
    "no blank lines": PLAIN.replace("\n\n", "\n"),
    "blank lines after headers": PLAIN.replace("grams:\n", "grams:\n\n").replace("\\data\\\n", "\\data\\\n\n"),
    "blank lines within": PLAIN.replace("\n-", "\n\n \t\n-").replace("\nngram 2", "\n\nngram 2"),
    "blank lines with CR": PLAIN.replace("\n-", "\n\n-").replace("\n", "\r\n"),
}


def scores(name: str) -> list[float]:
    """log10 p of `a b </s>`."""
    found = package.load(name).score("a b") / math.log(10)
    return [round(float(value), 6) for value in found]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blank_lines_say_nothing(layout: str, tmp_path: Path) -> None:
    (tmp_path / "x.arpa").write_bytes(LAYOUTS[layout].encode())
    assert scores(str(tmp_path / "x.arpa")) == [-0.25, -0.4, -0.5]


def test_errors_name_their_lines_behind_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.arpa"
    spaced = PLAIN.replace("\n-", "\n\n-")  # -0.3 a is in line 11, <s> a in line 17, a b in line 19
    assert spaced.split("\n")[10] == "-0.3\ta\t-0.2" and spaced.split("\n")[18] == "-0.4\ta b"
    for right, wrong, said in (
        ("-0.3\ta\t", "0.3\ta\t", "line 11: has a positive"),
        ("-0.4\ta b", "0.4\ta b", "line 19: has a positive"),
        ("-0.4\ta b", "-0.4\t<s> a", "line 19: the same n-gram is also in line 17"),
        ("ngram 2=2", "ngram 2=3", "line 21: the 2-grams end after 2"),
        ("ngram 2=2", "ngram 2=1", "line 19: the 2-grams should end here"),
    ):
        path.write_text(spaced.replace(right, wrong))
        with pytest.raises(UserError, match=said):
            arpa_model(str(path))
    path.write_text(PLAIN.replace("\\2-grams:\n", "\\2-grams:\n\n\n").replace("-0.4\ta b", "-0.4\tc b"))
    with pytest.raises(UserError, match="line 15: has a word that is not among"):
        read_arpa(str(path))


@pytest.mark.parametrize("zero", ["-inf", "-Inf", "-INF", "-99"])
def test_ways_to_write_zero(zero: str, tmp_path: Path) -> None:
    path = tmp_path / "x.arpa"
    path.write_text(PLAIN.replace("-0.7\tb", f"{zero}\tb").replace("-0.25\t<s>", f"{zero}\t<s>"))
    assert scores(str(path)) == [-math.inf, -0.4, -0.5]
    path.write_text(PLAIN.replace("-0.7\tb", "-infinite\tb"))
    with pytest.raises(UserError, match="line 9: should begin with log10 p, a number"):
        read_arpa(str(path))


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [("-0.3\ta", "-0,3\ta", 8), ("a\t-0.2", "a\t-0,2", 8), ("-0.4\ta b", "-0,4\ta b", 13), ("a b", "a b\t-0,1", 13)],
)
def test_a_decimal_comma_is_called_one(right: str, wrong: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "x.arpa").write_text(PLAIN.replace(right, wrong))
    with pytest.raises(UserError, match=f"line {line}: has a decimal comma: write numbers with a point"):
        read_arpa(str(tmp_path / "x.arpa"))


def test_weights_of_the_highest_order_are_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.arpa"
    for weight, noted in (("\t-0.3", True), ("\t0", False), ("", False)):
        path.write_text(PLAIN.replace("a b", f"a b{weight}"))
        caplog.clear()
        assert scores(str(path)) == [-0.25, -0.4, -0.5]
        assert ("x.arpa has back-off weights at its 2-grams: longer n-grams were cut off" in caplog.text) is noted


def test_letters_with_a_space_are_written_and_read_again(lmtool: Run, tmp_path: Path) -> None:
    Path("t.txt").write_text("a b\nab a\n" * 20)
    data = ["data=text", "data.train=t.txt", "data.valid=t.txt", "data.vocabulary.unit=char"]
    lmtool("train", "model=ngram", "model.order=2", "smoother=witten_bell", *data, "hydra.run.dir=letters")
    said = lmtool("convert", "run=letters", "to=letters.arpa")
    assert "1 words have white space, which separates words in ARPA files: written as code points, such as" in said
    # 40 sentences: a 60, b 40, the space 40, </s> 40: after the space 20 b, 20 a. p(b | space) = (20 + 2 p(b)) / 42,
    # with p(b) = (40 + 4 / 5) / 184 and five types, as <unk> is one.
    rows = dict(line.split("\t")[1::-1] for line in Path("letters.arpa").read_text().splitlines() if "\t" in line)
    assert 10 ** float(rows["<0x20> b"]) == pytest.approx((20 + 2 * (40 + 4 / 5) / 184) / 42, rel=1e-6)
    assert "perplexity" in lmtool("eval", "arpa=letters.arpa", "text=t.txt")
    lmtool("convert", "arpa=letters.arpa", *data, "hydra.run.dir=again")
    texts = ["a b", "b  a", "ab"]
    for text in texts:
        ours, theirs = (package.load(name).score(text) for name in ("letters", "again"))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert " " in package.load("again").vocabulary.ids and "<0x20>" not in package.load("again").vocabulary.ids


def test_a_space_beside_its_code_point_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.arpa").write_text(PLAIN)
    table = arpa_table(read_arpa(str(tmp_path / "x.arpa")), arpa_model(str(tmp_path / "x.arpa")).vocabulary)
    vocabulary = Vocabulary((" ", "<0x20>", "<unk>", "</s>", "<s>"), np.zeros(5, dtype=np.int64), 3, 2)
    with pytest.raises(UserError, match="the vocabulary has a space and also <0x20>"):
        write_arpa(table, vocabulary, tmp_path / "y.arpa")
    assert not (tmp_path / "y.arpa").exists()


def test_symbol_tables_of_other_words(lmtool: Run, tmp_path: Path) -> None:
    Path("x.arpa").write_text(PLAIN)
    Path("none.txt").write_text("<eps> 0\nx 1\n<unk> 2\n#0 3\n")
    said = lmtool("convert", "arpa=x.arpa", "to=G.fst.txt", "symbol_table=none.txt", code=2)
    assert "symbol_table=none.txt: has none of the model's 2 words, such as 'a'" in said
    assert not Path("G.fst.txt").exists()
    Path("few.txt").write_text("<eps> 0\na 1\n<unk> 2\n#0 3\n")
    said = lmtool("convert", "arpa=x.arpa", "to=G.fst.txt", "symbol_table=few.txt")
    assert "left out n-grams with 1 words not in few.txt, such as b: 33.3 % of the model's words" in said  # a, b, <unk>


def test_word_lists_in_googles_columns(lmtool: Run, tmp_path: Path) -> None:
    Path("x.arpa").write_text(PLAIN)
    Path("t.txt").write_text("a b\n" * 9)
    Path("google.txt").write_text("a\t120\nb\t80\n")
    for line in (
        ["convert", "arpa=x.arpa", "to=y.arpa"],
        ["train", "model=ngram", "data=text", "data.train=t.txt", "data.valid=t.txt", "hydra.run.dir=run"],
    ):
        said = lmtool(*line, "limit_vocabulary=google.txt", code=2)
        assert "limit_vocabulary=google.txt: each line has a word and a number, as in Google's lists" in said
    assert not Path("y.arpa").exists() and not Path("run/run.json").exists()
