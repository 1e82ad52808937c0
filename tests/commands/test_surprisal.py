"""`lmtool surprisal` and `lmtool.surprisal`: by hand, against score, tables row by row, pieces that sum to one."""

from __future__ import annotations

import csv
import gzip
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import lmtool as python
from lmtool.config.data import Unit, WordRule
from lmtool.data.printed_words import cut_word, known_form, sentence_ends, words_of
from lmtool.data.subwords import Subwords
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.data.word_rows import rows_of_table
from lmtool.errors import UserError
from lmtool.evaluation.surprisal import score_words
from lmtool.evaluation.text_scores import ScoringModel
from lmtool.language_model import LanguageModel
from tests.conftest import NEURAL, Run

LOG2_10 = math.log2(10)
# Five words, and all bigrams after <s> and a that matter: each context sums to one.
ARPA = """\\data\\
ngram 1=6
ngram 2=5

\\1-grams:
-1	<unk>
-99	<s>	0
-0.69897	</s>
-0.30103	a	-0.30103
-0.69897	b	-0.30103
-1	.

\\2-grams:
-0.30103	<s> a
-0.60206	<s> b
-0.30103	a b
-0.12494	b .
-0.04576	. </s>

\\end\\
"""
# p(a | <s>) 1/2, p(b | a) 1/2, p(. | b) 3/4, p(</s> | .) 9/10; p(<unk> | a) = 1/2 * 1/10.
TEXT = "A b. zzz\nb\n"


@pytest.fixture
def files(lmtool: Run) -> Run:
    Path("de.arpa").write_text(ARPA)
    Path("text.txt").write_text(TEXT)
    return lmtool


def table(name: str) -> list[dict[str, str]]:
    header, *rows = [line.split("\t") for line in Path(name).read_text().splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_text_by_hand(files: Run) -> None:
    words = ("arpa=de.arpa", "text=text.txt", "words=punctuation", "lowercase=true", "to=s.tsv", "spillover=1")
    files("surprisal", *words)
    rows = table("s.tsv")
    assert [(r["item"], r["sentence"], r["position"], r["word"], r["tokens"], r["oov"], r["length"]) for r in rows] == [
        ("1", "1", "1", "A", "a", "0", "1"),
        ("1", "1", "2", "b.", "b .", "0", "2"),
        ("1", "1", "3", "zzz", "zzz", "1", "3"),
        ("1", "2", "1", "b", "b", "0", "1"),
    ]
    # after "." there is no bigram but </s>, and no weight: <unk> has 1/10
    by_hand = [1.0, 1 + math.log2(4 / 3), LOG2_10, 2.0]
    assert [float(r["surprisal_bits"]) for r in rows] == pytest.approx(by_hand, abs=1e-4)
    assert [r["surprisal_bits_prev1"] for r in rows] == ["", *(r["surprisal_bits"] for r in rows[:-1])]


@pytest.mark.parametrize("name", ["kn3", "nplm", "hs", "mix", "char"])
def test_sums_with_the_end_are_those_of_score(name: str, runs: Path) -> None:
    model = python.load(runs / name)
    sentences = ["ann", "hanna", "a"] if name == "char" else ["the cat sat on the mat", "a dog zzz"]
    total = sum(float(scores.sum()) for scores in model.score(sentences))
    found = python.surprisal(runs / name, sentences, unit="nats", end_of_sentence="add_to_last")
    assert found["surprisal_nats"].sum() == pytest.approx(-total, rel=1e-7)
    without = python.surprisal(runs / name, sentences, unit="nats", entropy=True)
    # Characters: no name is followed by a space, and the end of a name is part of its probability.
    assert (without["surprisal_nats"].sum() < -total - 0.01) == (name != "char")
    first = model.log_dist(model.context(np.empty(0, dtype=np.int64))[None])[0]
    of_first = -sum(math.exp(p) * p for p in first if p > -math.inf)
    assert without["entropy_nats"][0] == pytest.approx(of_first, rel=1e-6)


@pytest.mark.parametrize(
    "words", [["model=ngram", "data.sentences=false"], ["model=nplm", "model.across_sentences=true"]]
)
def test_contexts_across_sentences_and_text_without_them(words: list[str], lmtool: Run) -> None:
    network = [word for word in NEURAL if words[0] == "model=nplm" or word == "data=toy"]
    lmtool("train", *words, *network, "hydra.run.dir=run")
    sentences = ["the cat sat on the mat", "a dog ran"]
    sums = []
    for across in (False, True):
        total = sum(float(scores.sum()) for scores in python.load("run").score(sentences, across_sentences=across))
        settings = {"across_sentences": across, "unit": "nats", "end_of_sentence": "add_to_last", "entropy": True}
        found = python.surprisal("run", sentences, **settings)
        assert found["surprisal_nats"].sum() == pytest.approx(-total, rel=1e-6)
        sums.append((total, found["entropy_nats"].tolist()))
    assert abs(sums[0][0] - sums[1][0]) > 1e-3
    assert sums[0][1][:6] == pytest.approx(sums[1][1][:6], rel=1e-6) and abs(sums[0][1][6] - sums[1][1][6]) > 1e-4
    items = [{"item": n, "word": word} for n, text in enumerate(sentences) for word in text.split()]
    Path("items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in items))
    lmtool("surprisal", "run=run", "text=items.jsonl", "across_sentences=true", "unit=nats", "to=apart.parquet")
    pandas = pytest.importorskip("pandas")
    apart = pandas.read_parquet("apart.parquet")["surprisal_nats"]  # no context leaves an item
    alone = python.surprisal("run", sentences, unit="nats")["surprisal_nats"]
    assert apart.tolist() == pytest.approx(alone.tolist(), rel=1e-6)


def test_several_runs_side_by_side(runs: Path, lmtool: Run) -> None:
    Path("t.csv").write_text('story,word,"rt, ms"\n1,The,210.5\n1,cat.,300\n2,"""A",250\n2,"dog""",240\n')
    words = (f"runs=[{runs}/kn3,{runs}/nplm]", "text=t.csv", "item_column=story", "words=ptb", "lowercase=true")
    said = lmtool("surprisal", *words, "to=t.jsonl", "unit=log10", "hydra.run.dir=out")
    assert "t.csv: 4 words, 2 sentences, 2 items\nmean surprisal: kn3 " in said
    rows = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    assert list(rows[0])[:5] == ["story", "word", "rt, ms", "sentence", "position"]
    assert [(row["story"], row["word"], row["rt, ms"], row["tokens"]) for row in rows] == [
        (1, "The", 210.5, "the"),
        (1, "cat.", 300, "cat ."),
        (2, '"A', 250, "`` a"),
        (2, 'dog"', 240, "dog ''"),
    ]
    model = python.load(runs / "nplm")
    by_hand = [model.score(text)[:-1] for text in ("the cat .", '" a dog "')]
    sums = [-by_hand[0][0], -by_hand[0][1:].sum(), -by_hand[1][:2].sum(), -by_hand[1][2:].sum()]
    assert [row["surprisal_log10_nplm"] * math.log(10) for row in rows] == pytest.approx(sums, rel=1e-9)
    assert {"surprisal_log10_kn3", "oov", "log_frequency_log10"} < rows[0].keys()
    added = dict(zip(model.words, model.vocabulary.counts[:-1] + 1, strict=True))  # without <s>
    assert 10 ** rows[0]["log_frequency_log10"] == pytest.approx(added["the"] / sum(added.values()), rel=1e-9)
    result = json.loads(Path("out/result.json").read_text())
    assert [model["run"] for model in result["models"]] == ["kn3", "nplm"] and result["words"] == 4


def test_a_frame_comes_back_as_it_was(runs: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"w": ["the", "cat", "a", "dog"], "rt": [1.5, 2, 3, 4], "s": list("xxyy")}, list("abcd"))
    found = python.surprisal(runs / "kn3", frame, word_column="w", sentence_column="s", spillover=2)
    assert list(found.index) == list("abcd") and found[["w", "rt", "s"]].equals(frame)
    assert found["position"].tolist() == [1, 2, 1, 2] and found["length_prev2"].tolist()[2:] == [3, 3]
    scores = python.load(runs / "kn3").score(["the cat", "a dog"])
    by_hand = [-p / math.log(2) for sentence in scores for p in sentence[:-1]]
    assert found["surprisal_bits"].tolist() == pytest.approx(by_hand, rel=1e-12)
    with pytest.raises(UserError, match=r"text, row 3: None is not a word"):
        python.surprisal(runs / "kn3", frame.assign(w=["a", "b", math.nan, "c"]), word_column="w")
    with pytest.raises(UserError, match=r"give a pathlib\.Path"):
        python.surprisal(runs / "kn3", "the cat")


BAD = {
    "w\n": ("word_column=w", "t.tsv has no rows"),
    "word\titem\na\t1\n\t1\n": ("", "t.tsv, row 2: '' is not a word"),
    "word\titem\na\t1\nb\n": ("", "t.tsv, row 2: 1 cells, but the header has 2: correct"),
    "word\titem\na\t1\nb\t2\na\t1\n": ("", "t.tsv, row 3: item 1 began in row 1 and was interrupted"),
    "word\titem\na\t1\nb\t\n": ("", "t.tsv, row 2: it has no item"),
    "token\na\n": ("", "word_column=word: t.tsv has no such column, but token"),
    "word\tsurprisal_bits\na\t1\n": (
        "",
        "t.tsv: it has columns surprisal_bits already: rename them, or set prefix=lm_",
    ),
    'word\titem\n"a\t1\nb\t1\n': ("to=t.txt", "to=t.txt: the suffix decides what is written: .tsv, .csv or .jsonl"),
    "word\na\n": ("across_sentences=true", "across_sentences=true: de.arpa reads single sentences"),
    'word\n"""a"\n"b\n': ("", 't.tsv, line 3: "b has quotes that are not doubled, but other cells are quoted'),
    "word\tsentence\na\t1\nb\tNA\n": ("", "t.tsv, row 2: it has no sentence (None): give a text or a number"),
    "word\nb\n": ("to=./t.tsv", "to=./t.tsv is also a file of text=t.tsv: choose another"),
    "word\tlength\ttokens\tlength_prev1\na\t1\t2\t3\n": (
        "spillover=1",
        "it has columns tokens, length, length_prev1 already",
    ),
}


@pytest.mark.parametrize("content", BAD)
def test_what_cannot_be_aligned_is_named(content: str, files: Run) -> None:
    Path("t.tsv").write_text(content)
    setting, message = BAD[content]
    said = files("surprisal", "arpa=de.arpa", "text=t.tsv", *setting.split(), code=2)
    assert message in said


def test_quotes_in_tab_separated_words_are_letters(files: Run) -> None:
    Path("t.tok").write_text('word\tzone\n"a\t1\nb"\t2\n')
    files(
        "surprisal",
        "arpa=de.arpa",
        "text=t.tok",
        "word_column=word",
        "words=punctuation",
        "keep_punctuation=false",
        "to=o.tsv",
    )
    rows = table("o.tsv")
    assert [(row["word"], row["zone"], row["tokens"]) for row in rows] == [('"a', "1", "a"), ('b"', "2", "b")]
    assert [float(row["surprisal_bits"]) for row in rows] == pytest.approx([1, 1], abs=1e-4)
    files("surprisal", "arpa=de.arpa", "text=t.tok", "word_column=word", "to=o.csv.gz")
    with gzip.open("o.csv.gz", "rt", encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header[:3] == ["word", "zone", "item"] and [line[0] for line in lines] == ['"a', 'b"']


def test_tables_as_pandas_and_excel_write_them(files: Run) -> None:
    Path("t.tsv").write_bytes(b'word\trt\tx\n"""a"\t210.50\t1\n"b"""\tNA\t007\n')
    files("surprisal", "arpa=de.arpa", "text=t.tsv", "words=punctuation", "to=o.tsv")
    kept = [(row["word"], row["rt"], row["x"], row["length"]) for row in table("o.tsv")]
    assert kept == [('"a', "210.50", "1", "2"), ('b"', "NA", "007", "2")]
    files("surprisal", "arpa=de.arpa", "text=t.tsv", "words=punctuation", "to=o.jsonl")
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert [(row["rt"], row["x"]) for row in rows] == [(210.5, "1"), (None, "007")]
    Path("q.tsv").write_text('"word"\t"rt"\n"a"\t1\n')  # all texts are quoted, as R writes them
    files("surprisal", "arpa=de.arpa", "text=q.tsv", "to=o.tsv")
    assert [(row["word"], row["oov"]) for row in table("o.tsv")] == [("a", "0")]
    for cell, word in {'"a"': '"a"', '"a,"': "a,"}.items():  # Excel puts commas within quotes
        Path("q.tsv").write_text(f"word\trt\n{cell}\t1\n")
        files("surprisal", "arpa=de.arpa", "text=q.tsv", "to=o.tsv")
        assert [row["word"] for row in table("o.tsv")] == [word]


def test_nested_values_and_bytes_in_tables(files: Run) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(
        pa.table(
            {
                "word": [" a ", "e\u0301"],
                "of": [{"n": [1]}, {"n": []}],
                "raw": [b"r", b"s"],
                "time": [1700000000.1234, 2.0],
            }
        ),
        "t.parquet",
    )
    files("surprisal", "arpa=de.arpa", "text=t.parquet", "to=o.csv")
    with Path("o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["of"], row["raw"], row["length"], row["time"]) for row in rows] == [
        ('{"n": [1]}', "r", "1", "1700000000.1234"),
        ('{"n": []}', "s", "1", "2.0"),
    ]
    files("surprisal", "arpa=de.arpa", "text=t.parquet", "to=o.jsonl")
    assert json.loads(Path("o.jsonl").read_text().splitlines()[0])["raw"] == "r"


def test_the_sentences_of_a_text_are_those_found(files: Run) -> None:
    Path("text.txt").write_text("A bb.\nB\nbb. A\n")
    for rule, numbers in {"punctuation": "11223", "item": "11111"}.items():
        files("surprisal", "arpa=de.arpa", "text=text.txt", f"sentences={rule}", "to=o.tsv")
        assert "".join(row["sentence"] for row in table("o.tsv")) == numbers
    assert "text.txt: 5 words, 1 sentence, 1 item\n" in files(
        "surprisal", "arpa=de.arpa", "text=text.txt", "sentences=item"
    )
    Path("text.txt").write_text("a\nb <s>\n")
    files("surprisal", "arpa=de.arpa", "text=text.txt", "to=o.tsv")
    assert [(row["tokens"], row["oov"]) for row in table("o.tsv")] == [("a", "0"), ("b", "0"), ("<s>", "1")]
    Path("two.tsv").write_text("word\na\n")
    said = files("surprisal", "arpa=de.arpa", "text=t[ew]*t*", code=2)
    assert "2 files are named, but two.tsv is a table: name one table, or files of text" in said
    said = files("surprisal", "arpa=de.arpa", "text=text.txt", "item_column=story", code=2)
    assert "item_column=story: text.txt has no such column, but item, word, sentence: name one" in said
    Path("t.jsonl").write_text('{"word": "a", "item": [1]}\n')
    assert "row 1: it has no item ([1])" in files("surprisal", "arpa=de.arpa", "text=t.jsonl", code=2)
    Path("t.jsonl").write_text('{"word": "a"}\n{"word": 1}\n')
    said = files("surprisal", "arpa=de.arpa", "text=t.jsonl", code=2)
    assert "t.jsonl, line 2: 'word' is not text (int): name another column by word_column" in said


def test_odd_texts_in_python(files: Run, runs: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({0: [1, 2], "word": ["a", "b"]})
    assert python.surprisal("de.arpa", frame, out="x")[0].tolist() == [1, 2] and Path("x/result.json").exists()
    for text, message in {
        (1, 2): "text, row 1: 1 is not a word: give one",
        ("a \ud800",): r"text, row 2: '\\ud800' is not a word",
    }.items():
        with pytest.raises(UserError, match=message):
            python.surprisal("de.arpa", list(text))
    with pytest.raises(UserError, match=r"two columns of one name \(word, word\)"):
        python.surprisal("de.arpa", pandas.DataFrame([["a", "b"]], columns=["word", "word"]))
    with pytest.raises(UserError, match=r"row 2: it has no sentence \(None\)"):
        python.surprisal("de.arpa", frame.assign(sentence=[1, math.nan]))
    before = python.surprisal("de.arpa", frame, spillover=1)
    with pytest.raises(UserError, match="tokens, oov, surprisal_bits, length, surprisal_bits_prev1, length_prev1"):
        python.surprisal("de.arpa", before, spillover=1)
    Path("my_prev.arpa").write_text(ARPA)
    assert "surprisal_bits_my_prev_prev1" in python.surprisal(["my_prev.arpa", "de.arpa"], frame, spillover=1)


def test_no_entropy_of_scores_that_do_not_sum_to_one(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "smoother=stupid_backoff", "data=toy", "hydra.run.dir=run")
    Path("t.txt").write_text("the cat\n")
    assert "sum to one" in lmtool("surprisal", "run=run", "text=t.txt")
    assert "entropy=true: run has scores that do not sum to one" in lmtool(
        "surprisal", "run=run", "text=t.txt", "entropy=true", code=2
    )


class Bigrams(LanguageModel):
    """Bigrams of probabilities `[V, V]`."""

    def __init__(self, p: np.ndarray) -> None:
        self.p = p

    vocabulary_size = property(lambda self: len(self.p))
    context_size = 1

    def log_dist(self, contexts: np.ndarray) -> np.ndarray:
        return np.log(self.p[contexts[:, -1]])


def two_letters(pieces: list[str]) -> Subwords:
    """Return a tokenizer of these pieces, and of letters that it must have."""
    pytest.importorskip("tokenizers")
    numbers = {piece: number for number, piece in enumerate([*pieces, "\u2581", *"the"])}
    model = {"type": "BPE", "vocab": numbers, "merges": [["\u2581", "a"], ["\u2581", "b"]]}
    step = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    text = {"version": "1.0", "model": model, "pre_tokenizer": step, "decoder": step, "added_tokens": []}
    return Subwords.parse(json.dumps(text), "two letters")


@pytest.mark.parametrize("unit", ["char", "bpe"])
def test_words_of_pieces_sum_to_one(unit: str) -> None:
    """All words of a and b, up to a length beyond which next to nothing continues, and the end of the text."""
    words, begin, subwords = ["</s>", " ", "a", "b", "<unk>", "<s>"], [0, 2, 3], None
    if unit == "bpe":
        pieces = ["\u2581a", "\u2581b", "a", "b"]
        words, begin = ["</s>", *pieces, "<unk>", "<s>"], [0, 1, 2]
        subwords = two_letters(pieces)
    vocabulary = Vocabulary(tuple(words), np.ones(len(words), dtype=np.int64), 0, len(words) - 2)
    p = np.random.default_rng(3).random((len(words), len(words))) + 0.05
    p[:, [words.index("a"), words.index("b")]] *= 0.25  # words are short
    p[:, -2:] = 1e-300
    if unit == "char":
        p[1, :2] = 1e-300  # a space is followed by a letter
    p /= p.sum(axis=1, keepdims=True)
    form = TextForm(vocabulary, Unit(unit), subwords=subwords)
    scoring = ScoringModel(Bigrams(p), form, "bigrams")
    every = ["".join(letters) for n in range(1, 10) for letters in product("ab", repeat=n)]
    for before in ([], ["ab"], ["b", "ba"]):
        table = [(number, word) for number, last in enumerate(every) for word in [*before, last]]
        columns = {"item": [number for number, _ in table], "word": [word for _, word in table]}
        rows = rows_of_table(columns, "t", sentences="item")
        surprisal = score_words(scoring, rows, WordRule.whitespace).surprisal[len(before) :: len(before) + 1]
        end = p[-1, 0] / p[-1, begin].sum()  # of a text without words
        if before:
            rows = rows_of_table({"word": before}, "t", sentences="item")
            drop, add = (
                score_words(scoring, rows, WordRule.whitespace, add_end=end).surprisal for end in (False, True)
            )
            end = math.exp(drop[-1] - add[-1])
        assert end > 0.05 and np.exp(-surprisal).sum() + end == pytest.approx(1, abs=1e-5)


def test_words_after_one_of_probability_0_are_infinite() -> None:
    """Letters of a model without smoothing: from ba on nothing is possible."""
    words = ["</s>", " ", "a", "b", "<unk>", "<s>"]
    vocabulary = Vocabulary(tuple(words), np.ones(len(words), dtype=np.int64), 0, len(words) - 2)
    p = np.zeros((6, 6))
    p[[5, 2, 1]] = [[0, 0, 0.5, 0.5, 0, 0], [0.25, 0.25, 0, 0.5, 0, 0], [0, 0, 1, 0, 0, 0]]
    scoring = ScoringModel(Bigrams(p), TextForm(vocabulary, Unit.char), "bigrams")
    rows = rows_of_table({"word": ["a", "ab", "a", "..."]}, "t", sentences="item")
    with np.errstate(divide="ignore"):
        surprisal = score_words(scoring, rows, WordRule.whitespace, keep_punctuation=False).surprisal
    # a ends by " " or </s>, 1/2 of all; then b has no continuation
    assert surprisal[0] == pytest.approx(math.log(4)) and surprisal[1:3].tolist() == [math.inf] * 2
    assert math.isnan(surprisal[3])


def test_quotes_of_ptb_in_pieces_and_letters() -> None:
    for letters, written in {'"ab': '"ab"', '"ab`': "``ab''"}.items():
        words = ("</s>", *letters, "'", "<unk>", "<s>")
        form = TextForm(Vocabulary(words, np.ones(len(words), dtype=np.int64), 0, len(words) - 2), Unit.char)
        found = words_of('"ab"', form, WordRule.ptb, keep_punctuation=True, is_last=False)
        assert "".join(found).replace(" ", "") == written
    for quotes, cut in {'"': ['"', "ab", '"'], "\u2581``": ["``", "ab", "''"]}.items():
        pieces = ["\u2581a", "\u2581b", "a", "b", quotes]
        vocabulary = Vocabulary(("</s>", *pieces, "<unk>", "<s>"), np.ones(8, dtype=np.int64), 0, 6)
        form = TextForm(vocabulary, subwords=two_letters(pieces))
        assert words_of('"ab"', form, WordRule.ptb, keep_punctuation=True, is_last=False) == cut


PTB = {
    "don't": "do n't", "can't": "ca n't", "won't": "wo n't", "cannot": "can not", "I'm": "I 'm", "they've": "they 've",
    "Elvis's": "Elvis 's", "boys'": "boys '", "Mr.": "Mr.", "U.S.": "U.S.", "p.m.,": "p.m. ,", "J.": "J.",
    '"Hello,"': "`` Hello , ''", "'Admiral": "` Admiral", "'tis": "'t is", "'90s": "'90s", "saucer'.": "saucer ' .",
    "hunger!'": "hunger ! '", "(now)": "( now )", "wait--what": "wait -- what", "well...": "well ...",
    "1,000": "1,000", "50%": "50 %", "$5": "$ 5", "o'clock": "o'clock", "long-bearded": "long-bearded",
    "\u201cNo\u201d": "`` No ''", "don\u2019t": "do n't", "England ,": "England ,", "--": "--", "AT&T": "AT&T",
    "gonna": "gon na",
}  # fmt: skip


def test_words_are_cut_as_in_the_penn_treebank() -> None:
    assert {word: " ".join(cut_word(word, WordRule.ptb)) for word in PTB} == PTB
    last = {word: " ".join(cut_word(word, WordRule.ptb, is_last=True)) for word in ("etc.", "U.S.", "I.", "end.'")}
    assert last == {"etc.": "etc .", "U.S.": "U.S.", "I.": "I .", "end.'": "end . '"}
    marks = {word: " ".join(cut_word(word, WordRule.punctuation)) for word in ("\"don't", "Mr.", "well...", "x-ray)")}
    assert marks == {"\"don't": "\" don't", "Mr.": "Mr .", "well...": "well ...", "x-ray)": "x-ray )"}
    known = {'"', "-LRB-", "don't", ".", "``"}
    assert known_form(["``", "''", "(", "don\u2019t", "...", "zzz"], known) == [
        "``",
        '"',
        "-LRB-",
        "don't",
        *"...",
        "zzz",
    ]


def test_sentences_end_at_final_punctuation() -> None:
    text = "Mr. J. Fox said 'No!' loudly. Then he (a fox.) left... Who knows?\" It ended."
    assert "".join(mark or "-" for mark in sentence_ends(text.split())) == "-----.----.-?-."
    assert sentence_ends(["the", "end.", "a", "fox", "ran.", "so"]) == ["", ".", "", "", ".", ""]


def test_faulty_rows_and_lines_are_passed_over(files: Run) -> None:
    Path("t.jsonl").write_text('{"word": "a", "length": 9}\n{"word": 3, "length": 9}\n{"word": "b", "length": 9}\n')
    words = ("surprisal", "arpa=de.arpa", "text=t.jsonl", "to=o.tsv", "prefix=lm_")
    assert "t.jsonl, line 2: 'word' is not text (int)" in files(*words, code=2)
    for on_error, shown in (("null", ["a", "3", "b"]), ("skip", ["a", "b"])):
        assert "1; t.jsonl, row 2: 3 is not a word" in files(*words, f"on_error={on_error}")
        rows = table("o.tsv")
        assert [row["word"] for row in rows] == shown and {row["length"] for row in rows} == {"9"}
        assert [row["lm_surprisal_bits"] == "" for row in rows] == [word == "3" for word in shown]
    assert "has columns length already: rename them, or set prefix=lm_" in files(*words[:-1], "on_error=skip", code=2)
    Path("t.txt").write_bytes(b"a b\n\xff\nb\n")
    words = ("surprisal", "arpa=de.arpa", "text=t.txt", "to=o.tsv")
    assert "t.txt, line 2: byte 0xff is not UTF-8" in files(*words, code=2)
    assert "left out: 1; t.txt, line 2: byte 0xff" in files(*words, "on_error=skip")
    assert [row["word"] for row in table("o.tsv")] == ["a", "b", "b"]
