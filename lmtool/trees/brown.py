"""Clusters of words with the same neighbours: Brown et al. (1992), "Class-based n-gram models of natural language".

Their algorithm for large vocabularies: the commonest C words are clusters; each next word comes as one more, and the
two whose merging loses least average mutual information merge. At the end the C clusters merge until one is left:
that is the upper tree. Within each cluster stands a Huffman tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.trees.assemble import arranged, graft
from lmtool.trees.brown_kernels import f_table, merge_words
from lmtool.trees.huffman import huffman
from lmtool.trees.tree import Int64s, Tree


def bigrams(ids: npt.NDArray[Any], offsets: Int64s, words: int) -> tuple[Int64s, Int64s, Int64s]:
    """The different neighbours in the text, first words `[E]` and second words `[E]`, and how often each, `[E]`.

    ids: `[N]`, below `words`. offsets: `[S + 1]`, where sentences begin; none crosses from one to the next.
    """
    if len(ids) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    inside = np.ones(len(ids) - 1, dtype=bool)
    begins = offsets[(offsets > 0) & (offsets < len(ids))]
    inside[begins - 1] = False
    keys = (ids[:-1].astype(np.int64) * words + ids[1:])[inside]
    found, counts = np.unique(keys, return_counts=True)
    return found // words, found % words, counts.astype(np.int64)


def _lists(of: Int64s, other: Int64s, counts: Int64s, words: int) -> tuple[Int64s, Int64s]:
    """For each word where its list begins, `[W + 1]`, and the lists, `[E, 2]`: other words and counts."""
    order = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[order], np.arange(words + 1)).astype(np.int64)
    return begins, np.stack([other[order], counts[order]], axis=1)


def clustered(
    ids: npt.NDArray[Any], offsets: Int64s, counts: Int64s, clusters: int
) -> tuple[Int64s, Int64s, npt.NDArray[np.float64]]:
    """The cluster of each word `[W]`, all mergings `[W - 1, 2]` and their losses `[W - 1]`; as merge_words.

    Words come commonest first; clusters are called by the id of one of their words. The loss is in nats times
    the bigrams among the words that have come.
    """
    words = len(counts)
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    rank = np.empty(words, dtype=np.int64)
    rank[order] = np.arange(words)
    first, second, often = bigrams(ids, offsets, words)
    after = _lists(rank[first], rank[second], often, words)
    before = _lists(rank[second], rank[first], often, words)
    cluster_of, merges, losses = merge_words(*after, *before, clusters, f_table())
    return order[cluster_of[rank]], order[merges], losses


def brown(ids: npt.NDArray[Any], offsets: Int64s, counts: Int64s, clusters: int) -> Tree:
    """The tree of the train text's words `[W]`: O(W clusters^2) time.

    ids: `[N]`, of any integer type, below W. offsets: `[S + 1]`. counts: `[W]`. clusters: how many at once; more than
    W are W. Raises UserError for less than 1. There is no chance in it.
    """
    if clusters < 1:
        raise UserError(f"tree.clusters={clusters}: must be 1 or more; some hundreds are usual")
    cluster_of, merges, _ = clustered(ids, offsets, counts, clusters)
    names, group_of = np.unique(cluster_of, return_inverse=True)  # [G], [W]
    members = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    weight = dict(enumerate(np.bincount(group_of, weights=counts).tolist()))  # of nodes: leaves, then mergings
    at = {int(name): group for group, name in enumerate(names)}
    groups = len(names)
    children = []
    for node, (kept, gone) in enumerate(merges[len(merges) - (groups - 1) :].tolist(), start=groups):
        pair = sorted((at[kept], at.pop(gone)), key=lambda place: -weight[place])
        children.append([place - groups if place >= groups else -1 - place for place in pair])
        weight[node] = weight[pair[0]] + weight[pair[1]]
        at[kept] = node
    upper = arranged(np.array(children, dtype=np.int32), groups - 2, np.arange(groups))
    return graft(upper, [huffman(counts[own]) for own in members], members)
