"""The clusters of Brown et al. (1992), "Class-based n-gram models of natural language": what trees and classes share.

Their algorithm for large vocabularies: the C most frequent words are clusters; each next word is added as one more, and
the two clusters merge whose merging loses the least average mutual information.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.trees.brown_kernels import f_table, merge_words
from lmtool.trees.tree import Int64s


def bigrams(ids: npt.NDArray[Any], offsets: Int64s, words: int) -> tuple[Int64s, Int64s, Int64s]:
    """The different bigrams of a text: first words `[E]`, second words `[E]` and counts `[E]`.

    ids: `[N]`, below `words`. offsets: `[S + 1]`, where sentences begin; no bigram crosses from one to the next.
    """
    if len(ids) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    inside = np.ones(len(ids) - 1, dtype=bool)
    starts = offsets[(offsets > 0) & (offsets < len(ids))]
    inside[starts - 1] = False
    keys = (ids[:-1].astype(np.int64) * words + ids[1:])[inside]
    bigram_keys, counts = np.unique(keys, return_counts=True)
    return bigram_keys // words, bigram_keys % words, counts.astype(np.int64)


def neighbours(of: Int64s, other: Int64s, counts: Int64s, words: int) -> tuple[Int64s, Int64s]:
    """For each word where its list begins, `[W + 1]`, and the lists, `[E, 2]`: other words and counts."""
    order = np.argsort(of, kind="stable")
    starts = np.searchsorted(of[order], np.arange(words + 1)).astype(np.int64)
    return starts, np.stack([other[order], counts[order]], axis=1)


def clustered(
    ids: npt.NDArray[Any], offsets: Int64s, counts: Int64s, clusters: int
) -> tuple[Int64s, Int64s, npt.NDArray[np.float64]]:
    """The cluster of each word `[W]`, all mergings `[W - 1, 2]` and their losses `[W - 1]`, as of merge_words.

    Words are added most frequent first; a cluster's name is the id of one of its words. The loss is in nats times the
    number of bigrams among the words added so far.
    """
    words = len(counts)
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    rank = np.empty(words, dtype=np.int64)
    rank[order] = np.arange(words)
    first, second, counted = bigrams(ids, offsets, words)
    after = neighbours(rank[first], rank[second], counted, words)
    before = neighbours(rank[second], rank[first], counted, words)
    cluster_of, merges, losses = merge_words(*after, *before, min(clusters, words), f_table())
    return order[cluster_of[rank]], order[merges], losses
