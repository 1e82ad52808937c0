"""The n-grams without their first words, by search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.query.sums import recompute_backoffs
from lmtool.ngram.smoothers.interpolation import WittenBell
from tests.ngram.plain import random_sentences, text_of


@pytest.mark.parametrize("threshold", [None, 1e-3])
def test_suffixes_are_those_of_a_search_from_the_first_word(threshold: float | None) -> None:
    text, vocabulary = text_of(random_sentences(5, 100))
    table = estimate(count_ngrams(text, vocabulary, 4), WittenBell(4))
    if threshold is not None:
        table = prune_by_entropy(table, threshold, vocabulary.eos)
    found = table.trie.suffixes()
    for k in range(2, 5):
        grams = table.trie.ngrams(k, 0, table.sizes[k - 1])
        np.testing.assert_array_equal(found[k - 2], table.trie.find(grams[:, 1:]))
    assert (threshold is None) == all((nodes >= 0).all() for nodes in found)


def test_back_off_weights_by_suffixes_are_those_by_scoring() -> None:
    text, vocabulary = text_of(random_sentences(6, 100))
    table = estimate(count_ngrams(text, vocabulary, 4), WittenBell(4))
    fast = recompute_backoffs(table)
    slow = recompute_backoffs(replace(table, suffix_closed=False))
    np.testing.assert_array_equal(fast.log_backoff, slow.log_backoff)
