r"""Brown clusters: words with the same neighbours share a cluster, and similar clusters a subtree.

.. math::

    I = \sum_{c, c'} p(c, c') \log \frac{p(c, c')}{p(c)\,p(c')}

I is the average mutual information of the clusters of neighbouring words. The C most frequent words are clusters; each
next word is added as one more, and the two clusters merge whose merging loses the least of I. At the end the C
clusters merge until one is left: that is the upper tree. The words of each cluster have a Huffman tree.

Source: Brown, Della Pietra, deSouza, Lai & Mercer (1992), "Class-based n-gram models of natural language",
    Computational Linguistics 18, the algorithm for large vocabularies.
Complexity: O(W C^2) to build, of the W words that are clustered; paths somewhat longer than Huffman's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require_whole
from lmtool.errors import UserError
from lmtool.system.arrays import sentence_offsets, whole_numbers, word_counts
from lmtool.trees.assemble import arranged, graft
from lmtool.trees.base import TreeWords
from lmtool.trees.brown_clusters import clustered
from lmtool.trees.huffman import huffman_tree
from lmtool.trees.tree import Int64s, Tree


@dataclass(slots=True)
class BrownTree(TreeConfig):
    """Brown clusters (Brown et al. 1992). words, tokens: what they are learned from; null = all."""

    clusters: int = MISSING
    words: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        require_whole("tree.clusters", self.clusters, 2, 4096)
        require_whole("tree.words", self.words, 2, null=True)
        require_whole("tree.tokens", self.tokens, null=True)

    def build(self, words: TreeWords) -> Tree:
        """The tree of the train split; words that are not clustered have a Huffman tree beside the clusters'."""
        train = words.train()
        tokens = min(self.tokens or train.tokens, train.tokens)
        ids, offsets = train.ids[:tokens], np.append(train.offsets[train.offsets < tokens], tokens)
        some = self.words or len(words.counts)
        if some >= len(words.counts):
            return brown_tree(ids, offsets, words.counts, self.clusters)
        order = np.argsort(-words.counts, kind="stable")
        frequent, rare = np.sort(order[:some]), np.sort(order[some:])
        upper = brown_tree(*_without(rare, ids, offsets, len(words.counts)), words.counts[frequent], self.clusters)
        parts = [upper, huffman_tree(words.counts[rare])]
        return graft(huffman_tree(np.ones(2, dtype=np.int64)), parts, [frequent, rare])


def _without(
    dropped: Int64s, ids: npt.NDArray[Any], offsets: Int64s, words: int
) -> tuple[npt.NDArray[np.int64], Int64s]:
    """A text without some of its words, in the numbers of the others, and where its pieces begin: no bigram crosses
    what was left out.

    dropped: ids. ids: `[N]`. offsets: `[S + 1]`. Returns ids `[M]` and offsets that end with M.
    """
    kept = np.ones(words, dtype=bool)
    kept[dropped] = False
    number = np.cumsum(kept) - 1
    keep = kept[ids]
    begins = np.zeros(len(ids) + 1, dtype=bool)
    begins[offsets] = True
    begins[1:][~keep] = True
    before = np.append(0, np.cumsum(keep))  # tokens kept before each place
    return number[ids[keep]], np.unique(before[begins])


def brown_tree(ids: npt.NDArray[Any], offsets: Int64s, counts: Int64s, clusters: int) -> Tree:
    """The tree of the words `[W]` of a text, in O(W clusters^2) time and without random choices.

    ids: `[N]`, of any integer type, below W. offsets: int64 `[S + 1]`, where sentences begin, and N. counts: int64
    `[W]`. clusters: how many there are at a time, at most W of them. Raises UserError for less than 1, and ValueError
    for what are no counts, ids of W or more, and offsets that do not ascend from 0 to N.
    """
    if not isinstance(clusters, int | np.integer) or clusters < 1:
        raise UserError(f"tree.clusters={clusters}: must be a whole number, 1 or more; some hundreds are usual")
    counts = word_counts("brown_tree: counts", counts)
    ids = whole_numbers("brown_tree: ids", ids, ("N",), below=len(counts))
    offsets = sentence_offsets("brown_tree: offsets", offsets, len(ids))
    cluster_of, merges, _ = clustered(ids, offsets, counts, clusters)
    names, group_of = np.unique(cluster_of, return_inverse=True)  # [G], [W]
    members = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    weight = dict(enumerate(np.bincount(group_of, weights=counts).tolist()))  # of nodes: leaves, then mergings
    node_of = {int(name): group for group, name in enumerate(names)}  # by the name of the cluster
    groups = len(names)
    children = []
    for node, (name, merged) in enumerate(merges[len(merges) - (groups - 1) :].tolist(), start=groups):
        pair = sorted((node_of[name], node_of.pop(merged)), key=lambda child: -weight[child])
        children.append([child - groups if child >= groups else -1 - child for child in pair])
        weight[node] = weight[pair[0]] + weight[pair[1]]
        node_of[name] = node
    upper = arranged(np.array(children, dtype=np.int32), groups - 2, np.arange(groups))
    return graft(upper, [huffman_tree(counts[group]) for group in members], members)
