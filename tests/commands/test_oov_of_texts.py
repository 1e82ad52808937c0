"""Words out of vocabulary in given text: a warning that shows them, their names, and a limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lmtool as package
from lmtool.data.oov import text_warning, unknown_words
from lmtool.data.text_form import TextForm
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import Vocabulary
from lmtool.evaluation.other_tools import read_scores
from tests.conftest import Run

WORDS = ("these", "on", "mat", "cat", "</s>", "<unk>", "<s>")


def vocabulary(words: tuple[str, ...] = WORDS) -> Vocabulary:
    import numpy as np

    return Vocabulary(words, np.arange(len(words), 0, -1), words.index("</s>"), words.index("<unk>"))


def warned(*words: str, oov: int = 250, known: tuple[str, ...] = WORDS) -> str:
    return "".join(text_warning("new.txt", oov, 1000, words, vocabulary(known)))


def test_frequent_unknown_words_are_shown() -> None:
    said = warned("these.", "mat,", '"On', "mat,", "(cat)", "a b", "1987", "Cat")
    assert "(25.0 % of new.txt): e.g. mat,, these., \"On, (cat), 'a b'; cut and write it as the train text was" in said
    assert "data.vocabulary.unit=bpe" in said and "(25.0 % of new.txt): cut and write" in warned()
    assert warned("these.", oov=99) == "" and warned("these.", oov=100) != ""
    assert text_warning("new.txt", 4, 7, ["zzz"] * 4, vocabulary()) == []  # a few odd words in a sentence
    assert text_warning("new.txt", 5, 7, ["zzz"] * 5, vocabulary()) != []


def test_unknown_words_of_a_block() -> None:
    form = TextForm(vocabulary(), rules=TextRules(lowercase=True))
    assert unknown_words(b"These cats\non mats", form) == ["cats", "mats"]


@pytest.fixture
def tokenized(lmtool: Run) -> Run:
    """A bigram model of lower-case words without punctuation; raw, the same as a person writes it."""
    Path("train.txt").write_text("these cats sat on the mat\nthe dogs ran\n" * 5)
    Path("raw.txt").write_text("These cats sat on the mat.\nThe dogs, ran.\n")
    words = ("data=text", "data.name=mine", "data.train=train.txt", "data.valid=train.txt")
    lmtool("train", "model=ngram", "model.order=2", "smoother=laplace", *words, "hydra.run.dir=lm")
    return lmtool


def test_eval_and_score_warn_from_a_tenth(tokenized: Run) -> None:
    note = "warning: a high share is out of vocabulary and <unk> for the model ({} % of raw.txt): e.g. {}; cut and"
    assert note.format(45.5, "These, mat., The, dogs,, ran.") in tokenized("eval", "run=lm", "text=raw.txt")
    Path("raw.txt").write_text("these cats sat on the mat.\nthe dogs, ran.\n" * 2)
    note = note.format(27.3, "mat., dogs,, ran.")
    assert note in tokenized("eval", "run=lm", "text=raw.txt")
    assert note in tokenized("score", "run=lm", "text=raw.txt", "to=a.tsv")
    Path("raw.txt").write_text("these cats sat on the mat\nthe dogs ran\n" * 2 + "the mat.\n")
    for verb in (("eval",), ("score", "to=b.tsv")):
        assert "warning" not in tokenized(*verb, "run=lm", "text=raw.txt")
    with pytest.warns(UserWarning, match=r"e\.g\. These, Cats; cut"):
        package.evaluate("lm", text=["These Cats sat"] * 3)


def test_detail_shows_the_word(tokenized: Run) -> None:
    Path("raw.txt").write_text("these Weekly cats\n")
    said = tokenized("eval", "run=lm", "text=raw.txt", "detail=true", "hydra.run.dir=out")
    assert "\tp( Weekly=<unk> | these ...) \t= [1gram]" in said and "\tp( cats | Weekly=<unk> ...) \t=" in said
    Path("lines.txt").write_text(said)
    tokenized("compare", "runs=[out,lines.txt]", "hydra.run.dir=table")  # the lines are still read back, word by word
    assert len(read_scores("lines.txt").words) == 4


def test_buckets_and_filters_by_the_share_of_oovs(tokenized: Run) -> None:
    lines = ["the mat", "der Hund lief", "the Hund ran", "on the mat", "", "the dogs"]
    Path("pool.txt").write_text("\n".join(lines) + "\n")
    line = ("score", "run=lm", "text=pool.txt", "to=pool.tsv", "buckets=[head,tail]", "bucket_limits=[1000]")
    said = tokenized(*line, "hydra.run.dir=all")
    # Of 18 tokens 4 are unknown: der, Hund, lief; Hund.
    assert "bucket head" in said and "5 texts, to 1000.0000, 22.22 % OOVs" in said and "0 texts, 0.00 % OOVs" in said
    said = tokenized(*line, "max_oov=0.25", "filter=kept.txt", "hydra.run.dir=most")
    assert Path("kept.txt").read_text().splitlines() == ["the mat", "the Hund ran", "on the mat", "the dogs"]
    found = json.loads(Path("most/result.json").read_text())
    assert found["buckets"] == [["head", 1000.0, 4, 1 / 14], ["tail", None, 0, 0.0]]
    assert (found["kept"], found["max_oov"]) == (4, 0.25) and "OOVs at most" in said
    assert [row.split("\t")[-1] for row in Path("pool.tsv").read_text().splitlines()[1:]] == [
        *("head", "", "head", "head", "", "head")
    ]
    # A share is one of the texts within the limit, and so are quantiles.
    tokenized(*line[:4], "max_oov=0", "share=0.3", "filter=best.txt")
    assert len(Path("best.txt").read_text().splitlines()) == 1
    for given, why in (("max_oov=0.1", "max_oov=0.1: needs"), ("max_oov=1", "max_oov=1"), ("max_oov=-1", "-1")):
        more = [] if given == "max_oov=0.1" else ["filter=x.txt"]
        assert why in tokenized(*line[:4], given, *more, code=2)
