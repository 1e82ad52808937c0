"""Brown clusters and their tree: Brown et al. (1992), "Class-based n-gram models of natural language".

The algorithm for large vocabularies: the C most frequent words are the first clusters. Each next word is added as
another cluster, and then the two clusters are merged that lose the least average mutual information.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.system.arrays import IntArray, sentence_offsets, whole_numbers, word_counts
from lmtool.trees._brown_kernels import f_table, merge_words
from lmtool.trees.builders import arrange_tree, graft, huffman_tree
from lmtool.trees.tree import Tree

if TYPE_CHECKING:
    from lmtool.data.split import Split


def tree_of_split(
    split: Split, counts: IntArray, clusters: int, *, max_words: int | None, max_tokens: int | None
) -> Tree:
    """Build the tree of a split: its `max_words` most frequent words are clustered, the others in a Huffman tree.

    counts: int64 `[W]`. max_tokens: number of tokens of the split to learn from. None stands for all words or tokens.
    """
    tokens = min(max_tokens or split.tokens, split.tokens)
    ids, offsets = split.ids[:tokens], np.append(split.offsets[split.offsets < tokens], tokens)
    if max_words is None or max_words >= len(counts):
        return brown_tree(ids, offsets, counts, clusters)
    order = np.argsort(-counts, kind="stable")
    frequent, rare = np.sort(order[:max_words]), np.sort(order[max_words:])
    number = np.full(len(counts), -1)
    number[frequent] = np.arange(max_words)
    pairs = bigrams(ids, offsets, len(counts))
    first, second = number[pairs.first], number[pairs.second]
    both = (first >= 0) & (second >= 0)
    upper = _tree(Bigrams(first[both], second[both], pairs.counts[both]), counts[frequent], clusters)
    return graft(huffman_tree(np.ones(2, dtype=np.int64)), [upper, huffman_tree(counts[rare])], [frequent, rare])


def brown_tree(ids: npt.NDArray[Any], offsets: IntArray, counts: IntArray, clusters: int) -> Tree:
    """Build the tree of the words `[W]` of a text, in O(W clusters^2) time and without random choices.

    ids: `[N]`, of any integer type, below W. offsets: int64 `[S + 1]`, the starts of the sentences, and N. counts:
    int64 `[W]`. clusters: number of clusters at a time, at most W. Raises UserError if it is less than 1, and
    ValueError if `counts` are not counts, ids are W or more, or offsets do not ascend from 0 to N.

    >>> from lmtool.trees import brown_tree, code_strings
    >>> ids = [0, 2, 1, 2, 0, 3, 1, 3]  # words 0 and 1 stand before 2 and 3
    >>> code_strings(brown_tree(ids, [0, 2, 4, 6, 8], [2, 2, 2, 2], clusters=4))
    ['00', '01', '10', '11']
    """
    if not isinstance(clusters, int | np.integer) or clusters < 1:
        raise UserError(f"tree.clusters={clusters}: must be a whole number, 1 or more; some hundreds are usual")
    counts = word_counts("brown_tree: counts", counts)
    ids = whole_numbers("brown_tree: ids", ids, ("N",), below=len(counts))
    offsets = sentence_offsets("brown_tree: offsets", offsets, len(ids))
    return _tree(bigrams(ids, offsets, len(counts)), counts, clusters)


def _tree(pairs: Bigrams, counts: IntArray, clusters: int) -> Tree:
    cluster_of, merges, _ = cluster_words(pairs, counts, clusters)
    names, group_of = np.unique(cluster_of, return_inverse=True)  # [G], [W]
    members = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    weight = dict(enumerate(np.bincount(group_of, weights=counts).tolist()))  # weights of nodes: leaves, then mergings
    node_of = {int(name): group for group, name in enumerate(names)}  # node by the name of the cluster
    groups = len(names)
    children = []
    for node, (name, merged) in enumerate(merges[len(merges) - (groups - 1) :].tolist(), start=groups):
        pair = sorted((node_of[name], node_of.pop(merged)), key=lambda child: -weight[child])
        children.append([child - groups if child >= groups else -1 - child for child in pair])
        weight[node] = weight[pair[0]] + weight[pair[1]]
        node_of[name] = node
    upper = arrange_tree(np.array(children, dtype=np.int32), groups - 2, np.arange(groups))
    return graft(upper, [huffman_tree(counts[group]) for group in members], members)


class Bigrams(NamedTuple):
    """Different bigrams of a text of W words: first words `[E]`, second words `[E]` and counts `[E]`."""

    first: IntArray
    second: IntArray
    counts: IntArray


def bigrams(ids: npt.NDArray[Any], offsets: IntArray, words: int) -> Bigrams:
    """Count the different bigrams within the sentences of a text. ids: `[N]`, below `words`. offsets: `[S + 1]`."""
    inside = np.ones(max(len(ids) - 1, 0), dtype=bool)
    starts = offsets[(offsets > 0) & (offsets < len(ids))]
    inside[starts - 1] = False
    keys = (ids[:-1].astype(np.int64) * words + ids[1:])[inside]
    bigram_keys, counts = np.unique(keys, return_counts=True)
    return Bigrams(bigram_keys // words, bigram_keys % words, counts.astype(np.int64))


def neighbors(of: IntArray, other: IntArray, counts: IntArray, words: int) -> tuple[IntArray, IntArray]:
    """Return the start of each word's list, `[W + 1]`, and the lists, `[E, 2]`: other words and counts."""
    order = np.argsort(of, kind="stable")
    starts = np.searchsorted(of[order], np.arange(words + 1)).astype(np.int64)
    return starts, np.stack([other[order], counts[order]], axis=1)


def cluster_words(
    pairs: Bigrams, counts: IntArray, clusters: int
) -> tuple[IntArray, IntArray, npt.NDArray[np.float64]]:
    """Return the cluster of each word `[W]`, all mergings `[W - 1, 2]` and their losses `[W - 1]` (see merge_words).

    Words are added most frequent first; a cluster's name is the id of one of its words.
    """
    words = len(counts)
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    rank = np.argsort(order).astype(np.int64)
    first, second = rank[pairs.first], rank[pairs.second]
    after, before = (neighbors(*sides, pairs.counts, words) for sides in ((first, second), (second, first)))
    cluster_of, merges, losses = merge_words(after, before, min(clusters, words), f_table())
    return order[cluster_of[rank]], order[merges], losses
