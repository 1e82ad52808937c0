"""Files of KenLM, SRILM and as TSV: read to the last digit, and refused where they are of another text."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.evaluation.other_tools import OtherScores, align, detail_lines, read_scores, tokens_of_file
from lmtool.evaluation.token_scores import Tokens
from tests.evaluation.test_token_scores import TEXT, tokens

WORDS = ["a", "b", "</s>", "zzz", "a", "</s>"]
LOG10 = [-1.0, -0.25, -1.5, -3.0, -1.0, -0.5]

# As KenLM's query prints them: with sentences, and with -v word alone, when there is no line end at all.
KENLM = "a=5 2 -1\tb=7 3 -0.25\t</s>=2 3 -1.5\tTotal: -2.75 OOV: 0\n"
KENLM += "zzz=0 1 -3\ta=5 1 -1\t</s>=2 2 -5e-1\tTotal: -4.5 OOV: 1\n"
SUMMARY = "Perplexity including OOVs:\t16.1\nPerplexity excluding OOVs:\t7.07\nOOVs:\t1\nTokens:\t6\n"
WORDS_ALONE = "a=5 2 -1\tb=7 3 -0.25\t</s>=2 3 -1.5\tzzz=0 1 -3\ta=5 1 -1\t</s>=2 2 -0.5\t"
# As SRILM 1.7.3's ngram -ppl -debug 2 does.
SRILM = """reading 5 1-grams
a b
\tp( a | <s> ) \t= [2gram] 0.1 [ -1 ]
\tp( b | a ...) \t= [3gram] 0.562341 [ -0.25 ]
\tp( </s> | b ...) \t= [3gram] 0.0316228 [ -1.5 ]
1 sentences, 2 words, 0 OOVs
0 zeroprobs, logprob= -2.75 ppl= 8.25404 ppl1= 23.7137

zzz a
\tp( <unk> | <s> ) \t= [1gram] 0.001 [ -3 ]
\tp( a | <unk> ...) \t= [1gram] 0.1 [ -1 ]
\tp( </s> | a ...) \t= [2gram] 0.316228 [ -0.5 ]
1 sentences, 2 words, 0 OOVs
0 zeroprobs, logprob= -4.5 ppl= 31.6228 ppl1= 177.828

file text.txt: 2 sentences, 4 words, 0 OOVs
0 zeroprobs, logprob= -7.25 ppl= 16.1509 ppl1= 64.9382
"""
TSV10 = "pos\tsent\ttoken\tngram_len\tlog10p\n" + "".join(
    f"{k}\t0\t{word}\t1\t{value}\n" for k, (word, value) in enumerate(zip(WORDS, LOG10, strict=True))
)
TSVE = "word\tlnp\n" + "".join(f"{w}\t{v * math.log(10)}\n" for w, v in zip(WORDS, LOG10, strict=True))
TSVP = "p\tword\n" + "".join(f"{10**v}\t{w}\n" for w, v in zip(WORDS, LOG10, strict=True))
FILES = {
    "kenlm": KENLM,
    "kenlm-summary": KENLM + SUMMARY,
    "kenlm-words": WORDS_ALONE,
    "kenlm-words-summary": WORDS_ALONE + SUMMARY,
    "srilm": SRILM,
    "tsv-log10": TSV10,
    "tsv-ln": TSVE,
    "tsv-p": TSVP,
    "tsv-log10_p": TSV10.replace("log10p", "log10_p"),
    "tsv-logprob": TSV10.replace("log10p", "logprob"),  # SRILM's word for log10 p
    "tsv-log_prob": TSVE.replace("lnp", "log_prob"),
    "tsv-log_prob_nats": TSVE.replace("lnp", "log_prob_nats"),
    "tsv-ln_p": TSVE.replace("lnp", "ln_p"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_is_read(name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("scores.gz" if packed else "scores")
    path.write_bytes(gzip.compress(FILES[name].encode()) if packed else FILES[name].encode())
    found = align(read_scores(str(path)), tokens(TEXT))
    np.testing.assert_allclose(found, np.array(LOG10) * math.log(10), rtol=1e-12)


def test_what_detail_prints_is_read_again(tmp_path: Path) -> None:
    log_prob = np.log([0.1, 0.25, 0.5, 0.01, 0.3, 1.0])
    lines = detail_lines([(tokens(TEXT), log_prob, None, tokens(TEXT).offsets)], sentences=True, name="f")
    (tmp_path / "lines").write_text("run x\n" + "\n".join(lines) + "\n")
    np.testing.assert_allclose(align(read_scores(str(tmp_path / "lines")), tokens(TEXT)), log_prob, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KENLM.replace("b=7", "a=7"), ["sentence 1, token 2 is 'a', should be 'b'"]),
        (KENLM.replace("zzz=0", "b=0"), ["sentence 2, token 1 is 'b', should be '<unk>'"]),
        (KENLM.replace("\ta=5 1 -1", ""), ["sentence 2, token 2 is '</s>', should be 'a'"]),
        (KENLM.splitlines()[0], [": 3 tokens, 6 were scored here; the first 3 agree"]),
        (KENLM + KENLM, [": 12 tokens, 6 were scored here; the first 6 agree"]),
        (KENLM.replace("b=7 3 -0.25", "b=7 3"), ["line 1: 'b=7 3' is not word=id length log10p"]),
        (KENLM.replace("-0.25", "0.25"), ["line 1: 0.25 is above what a probability can be"]),
        (KENLM.replace("-3", "nan"), ["line 2: 'nan' is not a probability"]),
        (KENLM.replace("-3", "x"), ["line 2: 'x' is not a probability or the logarithm of one"]),
        (SRILM.replace("[ -0.25 ]", "-0.25"), ["line 4", "is not p( word | ...) = p [ log10p ], as SRILM's"]),
        (TSV10.replace("\t1\t-0.25", "\t-0.25"), ["row 2: 4 cells, but the header has 5"]),
        (TSVP.replace("0.001", "-0.001"), ["line 5: '-0.001' is not a probability"]),
        ("word\tscore\na\t1\n", ["unknown format"]),
        ("some text\nand more\n", ["unknown format"]),
        ("some, text\nand more\n", ["unknown format"]),
        ("word\tlog10p\n", ["has no scores"]),
        ("", ["is empty"]),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(text: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "scores").write_text(text)
    with pytest.raises(UserError) as error:
        align(read_scores(str(tmp_path / "scores")), tokens(TEXT))
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("name", ["s.csv", "s.txt", "s.tsv"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_tables_of_spreadsheets(mark: str, name: str, tmp_path: Path) -> None:
    rows = [["\ufeffword", "log10p"], ["the", '"-0,25"'], ['","', "-1,5" if mark != "," else "-1.5"], ['";"', "-2"]]
    rows += [['""""', "-3"], ["a\u2028b", "-4"], ["</s>", "0"]]
    if mark == "\t":
        rows[2][0], rows[3][0], rows[4][0], rows[1][1] = ",", ";", '"', "-0,25"  # as it stands without quotes
    (tmp_path / name).write_text("".join(mark.join(row) + "\r\n" for row in rows), encoding="utf-8", newline="")
    found = read_scores(str(tmp_path / name))
    assert found.words == ["the", ",", ";", '"', "a\u2028b", "</s>"]
    np.testing.assert_allclose(found.log_prob, np.array([-0.25, -1.5, -2, -3, -4, 0]) * math.log(10))


def test_a_probability_of_zero_is_read(tmp_path: Path) -> None:
    (tmp_path / "scores").write_text(SRILM.replace("[1gram] 0.001 [ -3 ]", "[OOV] 0 [ -inf ]"))
    assert align(read_scores(str(tmp_path / "scores")), tokens(TEXT))[3] == -np.inf
    (tmp_path / "scores").write_text(TSVP.replace("0.001", "0"))
    assert align(read_scores(str(tmp_path / "scores")), tokens(TEXT))[3] == -np.inf


def test_a_file_alone_says_what_its_tokens_are(tmp_path: Path) -> None:
    (tmp_path / "scores").write_text(KENLM)
    found = tokens_of_file(read_scores(str(tmp_path / "scores")))
    np.testing.assert_array_equal(found.offsets, [0, 3, 6])
    assert [found.words[k] for k in found.ids] == WORDS


def test_words_with_other_white_space_than_ascii(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a\u00a0b=3 2 -1\t</s>=1 1 -0.5\n", encoding="utf-8")
    assert read_scores(str(tmp_path / "s")).words == ["a\u00a0b", "</s>"]
    line = "\tp( {} | <s> ...) \t= [2gram] 0.1 [ {} ]\n"
    (tmp_path / "s").write_text(line.format("a\u00a0b", -1) + line.format("|", -2) + line.format("[", "-inf"))
    found = read_scores(str(tmp_path / "s"))
    assert found.words == ["a\u00a0b", "|", "["]
    np.testing.assert_allclose(found.log_prob, [-math.log(10), -2 * math.log(10), -math.inf])


@pytest.mark.parametrize("value", ["-1_0", "-\uff11", "1e", "--1"])
def test_numbers_that_only_python_reads(value: str, tmp_path: Path) -> None:
    for text in (f"a=3 2 {value}\n", f"word\tlog10p\na\t{value}\n", f"word\tp\na\t{value}\n"):
        (tmp_path / "s").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="is not a probability or the logarithm of one"):
            read_scores(str(tmp_path / "s"))


def test_a_long_line_of_brackets_is_read_in_no_time(tmp_path: Path) -> None:
    """Reject the line without backtracking over it, which would take minutes."""
    (tmp_path / "s").write_text("\tp( a | " + ") \t= [ x" * 200_000 + "\n")
    with pytest.raises(UserError, match=r"line 1: .* is not p\( word"):
        read_scores(str(tmp_path / "s"))


@pytest.mark.parametrize("words", [["a", "</s>", "b", "</s>", "</s>"], ["a", "</s>", "b", "</s>", "c"], ["a", "b"]])
def test_sentences_of_a_file_by_hand(words: list[str]) -> None:
    found = tokens_of_file(OtherScores("x", words, np.zeros(len(words))))
    offsets = {5: [0, 2, 4, 5], 2: [0, 2]}[len(words)]
    assert found.offsets.tolist() == offsets and [found.words[k] for k in found.ids] == words


def test_sentences_whose_end_is_not_predicted() -> None:
    text = Tokens(np.array([0, 1, 1], dtype=np.uint32), ("a", "b"), np.array([0, 2, 3]), np.empty(0, dtype=np.int64))
    found = list(detail_lines([(text, np.log([0.1] * 3), None, text.offsets)], sentences=True, name="f"))
    assert [found[k] for k in (0, 3, 4, -2, -1)] == [
        "a b",
        "1 sentences, 2 words, 0 OOVs",
        "0 zeroprobs, logprob= -2 ppl= 10 ppl1= 10",
        "file f: 2 sentences, 3 words, 0 OOVs",
        "0 zeroprobs, logprob= -3 ppl= 10 ppl1= 10",
    ]


def test_zeros_and_text_without_sentences() -> None:
    stream = tokens([0, 1], sentences=False)
    part = stream, np.array([-np.inf, np.log(0.1)]), None, stream.offsets
    found = list(detail_lines([part], sentences=False, name="f"))
    assert found == [
        "\tp( a | <s> ) \t= 0 [ -inf ]",
        "\tp( b | a ...) \t= 0.1 [ -1 ]",
        "file f: 0 sentences, 2 words, 0 OOVs",
        "1 zeroprobs, logprob= -1 ppl= 10 ppl1= 10",
    ]
