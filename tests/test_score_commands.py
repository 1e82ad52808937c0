"""What is done with scores, as commands: any text, every token's line, the share of right guesses."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmtool.scores.kept import Kept

Run = Callable[..., str]
TEXT = ("data=text", "data.name=mine", "data.train=train.txt", "data.valid=valid.txt")


def result(folder: str) -> dict[str, object]:
    return json.loads((Path(folder) / "result.json").read_text())


@pytest.fixture
def unigram(lmtool: Run) -> Run:
    """A maximum likelihood unigram of 12 tokens: a 6, b 2, </s> 4; <unk> has none."""
    Path("train.txt").write_text("a b\na a\na b\na a\n")
    Path("valid.txt").write_text("a\nb a\n")
    lmtool("train", "model=ngram", "model.order=1", "smoother=mle", *TEXT, "hydra.run.dir=one")
    return lmtool


def test_every_token_is_kept_and_shown(unigram: Run) -> None:
    said = unigram("eval", "run=one", "detail=true", "accuracy=true", "hydra.run.dir=out")
    assert "\nb a\n\tp( b | <s> ) \t= [1gram] 0.1666667 [ -0.77815" in said
    assert "\n\tp( a | b ...) \t= [1gram] 0.5 [ -0.30103 ]\n" in said
    # 10^(log10(2) + log10(3)) of the 1st, of all: (2 * 2 * 3 * 3 * 6) ^ (1/5)
    assert "file valid: 2 sentences, 3 words, 0 OOVs" in said and f"{216**0.2:.4f}" in said
    found = result("out")
    assert found["accuracy"] == 0.4  # a is the likeliest word, and stands at 2 of 5 places
    assert found["perplexity"] == pytest.approx(216**0.2)
    kept = Kept.open(Path("out/scores.h5"))
    np.testing.assert_allclose(np.exp(kept.log_prob), [1 / 2, 1 / 3, 1 / 6, 1 / 2, 1 / 3], rtol=1e-6)
    assert [kept.tokens.words[k] for k in kept.tokens.ids] == ["a", "</s>", "b", "a", "</s>"]
    assert "accuracy" not in (unigram("eval", "run=one", "hydra.run.dir=plain") + str(result("plain")))


def test_any_text_is_scored(unigram: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("new.txt").write_text("b zzz\n\na\n")  # the empty line is no sentence
    unigram("train", "model=ngram", "model.order=1", "smoother=laplace", *TEXT, "hydra.run.dir=laplace")
    said = unigram("eval", "run=laplace", "text=new.txt", "hydra.run.dir=file")
    # (c + 1) / 16: b 3, <unk> 1, </s> 5, a 7, </s> 5.
    found = result("file")
    assert (found["tokens"], found["oov"]) == (5, 1)
    assert found["perplexity"] == pytest.approx(math.prod(16 / k for k in (3, 1, 5, 7, 5)) ** 0.2, rel=1e-6)
    assert found["perplexity_without_oov"] == pytest.approx(math.prod(16 / k for k in (3, 5, 7, 5)) ** 0.25, rel=1e-6)
    assert found["bits_per_character"] == pytest.approx(5 * found["bits_per_word"] / 9) and "new.txt" in said
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b zzz\na")))  # without the last newline
    unigram("eval", "run=laplace", "text=-", "hydra.run.dir=standard")
    assert result("standard")["log_prob"] == found["log_prob"]
    assert (
        Kept.open(Path("file/scores.h5")).tokens.fingerprint == Kept.open(Path("standard/scores.h5")).tokens.fingerprint
    )


def test_text_that_is_none(unigram: Run) -> None:
    Path("empty.txt").write_text("\n\n")
    assert "empty.txt is empty" in unigram("eval", "run=one", "text=empty.txt", code=2)
    assert "no file missing.txt" in unigram("eval", "run=one", "text=missing.txt", code=2)
    Path("marks.txt").write_text("<s> a\n")
    assert "<s> stands in the text" in unigram("eval", "run=one", "text=marks.txt", code=2)
