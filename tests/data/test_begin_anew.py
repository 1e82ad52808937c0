"""Contexts that cross sentences, and sentences with a reset context, in memory and streamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lmtool.data import split as module
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split, context_reset_mask

EOS, BOS = 9, 10


def text() -> Split:
    # Sentences of 3 tokens: 1 2 </s>, 3 4 </s>, ...
    ids = np.array([1, 2, EOS, 3, 4, EOS, 5, 6, EOS, 7, 8, EOS], dtype=np.uint8)
    return Split(ids, np.arange(0, 13, 3), np.empty(0, np.int64), 0, BOS)


def test_the_share_is_kept_and_spread() -> None:
    starts = np.arange(0, 200_000, 7)
    for share in (0.0, 0.05, 0.5, 1.0):
        assert abs(context_reset_mask(starts, share).mean() - share) < 0.003
    chosen = np.flatnonzero(context_reset_mask(starts, 0.05))
    assert np.diff(chosen).max() < 100


def test_by_hand() -> None:
    # Fractions of 3, 6 and 9 times the golden ratio less 1: 0.854, 0.708, 0.562.
    split = text()
    contexts = split.as_stream(True, 0.6).windows(np.arange(12), 4)[0]
    assert contexts[6].tolist() == [EOS, 3, 4, EOS]
    assert contexts[9].tolist() == [BOS] * 4  # the last sentence has a reset context
    assert contexts[11].tolist() == [BOS, BOS, 7, 8]
    assert split.as_stream(True).windows(np.array([9]), 4)[0].tolist() == [[EOS, 5, 6, EOS]]
    assert split.as_stream(False, 0.6) is split
    apart = replace(split, independent_sentences=True)
    assert apart.as_stream(True, 0.6) is apart


def test_streamed_as_in_memory(toy: Corpus) -> None:
    split = toy.split("train")
    whole = split.as_stream(True, 0.3)
    assert 2 < len(whole.offsets) < len(split.offsets)
    contexts, targets = whole.windows(np.arange(split.tokens), 6)
    stored = toy.stored("train", across_sentences=True, reset_share=0.3)
    # In one block, whose first token is the text's.
    windows, places = next(iter(stored.groups(np.arange(stored.blocks), 6)))
    ours, words = windows(places, 6)
    assert split.tokens < module.BLOCK_TOKENS
    assert np.array_equal(ours, contexts)
    assert np.array_equal(words, targets)
