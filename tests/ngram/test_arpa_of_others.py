"""ARPA files as other tools and people write them: blank lines or none, -Inf, decimal commas, cut files, letters."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.files.arpa_read import read_arpa
from tests.conftest import Run

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
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.files.arpa_model import arpa_table, write_arpa

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
