"""The depths of a tree's leaves, and how near to the shortest code they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lmtool.system.arrays import whole_numbers, word_counts
from lmtool.trees.codes import code_string
from lmtool.trees.tree import Int64s, Tree, require_tree, require_words


@dataclass(frozen=True, slots=True)
class TreeAnalysis:
    """Depths count the decisions from the root to a leaf; of a word with several codes, the mean of them.

    words, leaves, nodes: W, L, N. mean_depth: over words. weighted_mean_depth: over the occurrences in train, the
    decisions per prediction; over words where nothing occurs. entropy: of the words' shares in train, in bits: no tree
    with one code per word has a smaller weighted mean. depths: the number of leaves at each depth, from 0 on.
    """

    words: int
    leaves: int
    nodes: int
    mean_depth: float
    weighted_mean_depth: float
    minimal_depth: int
    maximal_depth: int
    entropy: float
    depths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PathRow:
    """A code of a word: its count in train, the share of all counts, and the code's length."""

    word: str
    count: int
    share: float
    depth: int
    code: str


def analyse(tree: Tree, counts: Int64s) -> TreeAnalysis:
    """The analysis of a tree over words with counts int64 `[W]` in train.

    Raises ValueError for what is no Tree and for counts of other words.
    """
    require_tree("analyse: tree", tree)
    counts = word_counts("analyse: counts", counts, tree.words)
    depths = np.bincount(tree.leaf_words, weights=tree.depths) / np.bincount(tree.leaf_words)  # [W]
    total = counts.sum()
    share = counts[counts > 0] / max(total, 1)
    mean = float(depths.mean())
    return TreeAnalysis(
        words=tree.words,
        leaves=tree.leaves,
        nodes=tree.nodes,
        mean_depth=mean,
        weighted_mean_depth=float((depths * counts).sum() / total) if total else mean,
        minimal_depth=int(tree.depths.min()),
        maximal_depth=int(tree.depths.max()),
        entropy=float(np.abs((share * np.log2(share)).sum())),
        depths=tuple(np.bincount(tree.depths).tolist()),
    )


def path_rows(tree: Tree, words: Sequence[str], counts: Int64s, which: Sequence[int]) -> list[PathRow]:
    """A row for every code of the words whose ids are `which`, in their order. words: `[W]`, as text. counts: int64
    `[W]`, in train.

    Raises ValueError for what is no Tree, for fewer words, for counts of another number and ids out of range.
    """
    require_tree("path_rows: tree", tree)
    counts = word_counts("path_rows: counts", counts, tree.words)
    require_words("path_rows: words", words, tree)
    which = whole_numbers("path_rows: which", which, ("N",), below=tree.words).tolist()
    total = max(int(counts.sum()), 1)
    rows = []
    for word in which:
        count = int(counts[word])
        for leaf in range(int(tree.word_leaves[word]), int(tree.word_leaves[word + 1])):
            rows.append(PathRow(words[word], count, count / total, int(tree.depths[leaf]), code_string(tree, leaf)))
    return rows
