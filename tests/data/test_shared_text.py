"""Text that is in train and in valid: a note says how much of valid it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmtool.data import first_pass
from lmtool.data.first_pass import shared_sentences

REMEDY = "its perplexity says little of new text; give data.valid other text"


def test_the_share_is_that_of_a_plain_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)

    def drawn(sentences: int) -> list[list[int]]:
        return [[*rng.integers(3, 5, rng.integers(0, 5)).tolist(), 0] for _ in range(sentences)]

    def ids(sentences: list[list[int]]) -> np.ndarray:
        return np.array([k for sentence in sentences for k in sentence], dtype=np.int32)

    for _ in range(20):
        train, valid = drawn(6), drawn(9)
        want = sum(sentence in train for sentence in valid) / 9
        assert shared_sentences({"train": ids(train), "valid": ids(valid)}, sentences=True) == pytest.approx(want)
    monkeypatch.setattr(first_pass, "HASHED", 12)  # pieces, one sentence of which may be cut
    train, valid = drawn(40), drawn(60)
    want = sum(sentence in train for sentence in valid) / 60
    assert abs(shared_sentences({"train": ids(train), "valid": ids(valid)}, sentences=True) - want) < 0.2
    assert shared_sentences({"train": ids(train), "valid": ids(train)}, sentences=False) == 1
    assert shared_sentences({"train": ids(train), "valid": ids(train)[:-1]}, sentences=False) == 0


def test_the_same_file_and_lines_in_both(lmtool: Callable[..., str]) -> None:
    Path("t.txt").write_text("a b\nb a\nc\na c\nb\n")
    Path("v.txt").write_text("c\na a\nb b\nc c\n")  # one of four
    Path("new.txt").write_text("a a\nb b b\n")
    words = ["preprocess", "data=text", "data.train=t.txt"]
    assert f"warning: 100.0 % of the sentences of valid are in train, too: {REMEDY}" in lmtool(
        *words, "data.valid=t.txt"
    )
    assert "warning: 25.0 % of the sentences of valid are in train, too" in lmtool(*words, "data.valid=v.txt")
    assert "in train, too" not in lmtool(*words, "data.valid=new.txt")
    # Of two streams only that they are the same text, under whatever names.
    Path("copy.txt").write_text("a b\nb a c\na c\nb\n")
    stream = [*words, "data.sentences=false"]
    assert f"warning: 100.0 % of valid is in train, too: {REMEDY}" in lmtool(*stream, "data.valid=copy.txt")
    assert "in train, too" not in lmtool(*stream, "data.valid=v.txt")
    trained = lmtool("train", "model=ngram", "model.order=2", *words[1:], "data.valid=t.txt")
    assert "warning: 100.0 % of the sentences of valid are in train, too" in trained
    lmtool(*words, "data.valid=t.txt", "data.vocabulary.unit=char")
    assert "warning: 100.0 % of the sentences" in lmtool(*words, "data.valid=t.txt", "data.vocabulary.unit=char")
