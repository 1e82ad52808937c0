"""Figures per token, per word and per character say which: printed, in result.json, in Python, in reports and cards."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import lmtool as lm
from tests.conftest import Run, result

TEXT = ["data=text", "data.train=train.txt", "data.valid=valid.txt"]
LETTERS = ["data.vocabulary.unit=char", "data.name=letters"]
# Laplace, order 1, letters of "ab a" and "b": </s> 2, a 2, b 2, " " 1, with one added to each and <unk>: of 12.
TRAIN, VALID = "ab a\nb\n", "ab ab\na\n"
LOG_PROB = sum(math.log(k / 12) for k in (3, 3, 2, 3, 3, 3, 3, 3))
TOKENS, WORDS, CHARACTERS = 8, 5, 8  # a b _ a b </s> a </s>; ab ab </s> a </s>; "ab ab\na\n"


def figures(said: str) -> dict[str, float]:
    """Return the printed rows that have one number."""
    return {m[1].strip(): float(m[2].replace(",", "")) for m in re.finditer(r"^(\D+?)\s+([\d.,]+)$", said, re.M)}


@pytest.fixture
def letters(lmtool: Run) -> Run:
    Path("train.txt").write_text(TRAIN)
    Path("valid.txt").write_text(VALID)
    lmtool("train", "model=ngram", "model.order=1", "smoother=laplace", *TEXT, *LETTERS, "hydra.run.dir=letters")
    return lmtool


def test_labels_and_values_agree_in_letters(letters: Run) -> None:
    for words in (("split=valid",), ("text=valid.txt",)):
        printed = figures(letters("eval", "run=letters", *words, "hydra.run.dir=found"))
        found = result("found")
        wanted = {
            "perplexity": math.exp(-LOG_PROB / TOKENS),
            "bits per token": -LOG_PROB / TOKENS / math.log(2),
            "perplexity per word": math.exp(-LOG_PROB / WORDS),
            "bits per word": -LOG_PROB / WORDS / math.log(2),
            "bits per character": -LOG_PROB / CHARACTERS / math.log(2),
        }
        for label, value in wanted.items():
            assert printed[label] == pytest.approx(value, rel=1e-3)
            assert found[label.replace(" ", "_")] == pytest.approx(value)
    of_python = lm.evaluate("letters", text=VALID.splitlines())
    for label, value in wanted.items():
        assert getattr(of_python, label.replace(" ", "_")) == pytest.approx(value)


def test_words_have_one_figure_for_both(letters: Run) -> None:
    letters("train", "model=ngram", "model.order=1", "smoother=laplace", *TEXT, "hydra.run.dir=words")
    said = letters("eval", "run=words", "hydra.run.dir=found")
    found = result("found")
    assert found["bits_per_token"] == found["bits_per_word"] == pytest.approx(math.log2(found["perplexity"]))
    assert found["perplexity_per_word"] == found["perplexity"]
    assert figures(said)["bits per word"] == pytest.approx(found["bits_per_word"], rel=1e-3)
    assert "bits per token" not in said and "perplexity per word" not in said


def test_mixed_score_files_know_their_words(letters: Run) -> None:
    letters("eval", "run=letters", "hydra.run.dir=a")
    said = letters("ensemble", "runs=[a/scores.h5,a/scores.h5]", "weights=[1,1]", "hydra.run.dir=mix")
    found = result("mix")
    assert found["bits_per_token"] == pytest.approx(-LOG_PROB / TOKENS / math.log(2))
    single = result("a")
    for key in ("perplexity_per_word", "bits_per_word", "bits_per_character"):
        assert found[key] == pytest.approx(single[key])
    assert "bits per word" in said


def test_a_report_has_a_table_for_each_text_and_unit(letters: Run) -> None:
    """Report runs whose data share a name: characters, words, words of another train text, and another scored text."""
    order = ["train", "model=ngram", "model.order=1", "smoother=laplace", *TEXT]
    letters(*order, "hydra.run.dir=runs/words")
    letters(*order, "smoother.alpha=0.5", "hydra.run.dir=runs/half")
    letters(*order, "data.vocabulary.unit=char", "hydra.run.dir=runs/chars")
    letters("eval", "run=runs/words", "hydra.run.dir=runs/of-valid")
    letters("eval", "run=runs/words", "text=train.txt", "hydra.run.dir=runs/of-train")
    Path("train.txt").write_text(TRAIN + "c\n")
    letters(*order, "hydra.run.dir=runs/more")
    letters("report", "runs", "hydra.run.dir=page", "threads=1", "resamples=100")
    page = Path("page/report.html").read_text()
    tables = [
        {name for name in ("words", "half", "chars", "of-valid", "of-train", "more") if re.search(f">{name}<", table)}
        for table in re.findall(r"<table.*?</table>", page, re.S)
    ]
    assert sorted(map(sorted, tables)) == [["chars"], ["half", "of-valid", "words"], ["more"], ["of-train"]]
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert len(set(titles)) == 4 and any("char" in title for title in titles)
    assert ">bits per token<" in page and ">bits per character<" in page and ">bits per word<" not in page


def test_a_card_names_its_tokens(letters: Run) -> None:
    letters("export", "run=letters", "to=card")
    assert "per predicted token: every character and the end of each sentence" in Path("letters/README.md").read_text()
