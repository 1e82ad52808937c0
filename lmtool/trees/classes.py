r"""Two levels: classes of words by frequency, then the words of each.

.. math::

    d(w) = d_{\text{Huffman}}(g(w)) + \log_2 |g(w)| \quad \text{(rounded down or up)}

g(w) is the class of w: the words, most frequent first, are cut into classes of about equal counts. The classes have a
Huffman tree, the words of a class a balanced one.

Source: Goodman (2001), "Classes for fast maximum entropy training", ICASSP.
Complexity: O(W log W) to build over W words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require_whole
from lmtool.system.arrays import word_counts
from lmtool.trees.assemble import graft
from lmtool.trees.base import TreeWords
from lmtool.trees.frequency_classes import class_of_words
from lmtool.trees.halving import balanced_tree
from lmtool.trees.huffman_code import huffman_tree
from lmtool.trees.tree import Int64s, Tree


@dataclass(slots=True)
class ClassesTree(TreeConfig):
    """Classes by frequency, then their words."""

    classes: int | None = MISSING

    def __post_init__(self) -> None:
        require_whole("tree.classes", self.classes, null=True)

    def build(self, words: TreeWords) -> Tree:
        """The tree of the words' counts. Raises UserError for more classes than words."""
        return classes_tree(words.counts, self.classes)


def classes_tree(counts: Int64s, number: int | None) -> Tree:
    """Words in order of frequency in `number` classes: a Huffman tree over the classes, a balanced tree in each.

    counts: int64 `[W]`, in any order; also a tensor on the CPU or a list. number: None for about the square root of W.
    Raises UserError for more classes than words, or none, and ValueError for what are no counts.
    """
    counts = word_counts("classes_tree: counts", counts)
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    class_of = class_of_words(counts[order], number)
    ends = np.searchsorted(class_of, np.arange(1, class_of[-1] + 1))
    members = np.split(order, ends)
    of_size = {size: balanced_tree(np.arange(size)) for size in {len(group) for group in members}}
    top = huffman_tree(np.bincount(class_of, weights=counts[order]).astype(np.int64))
    return graft(top, [of_size[len(group)] for group in members], members)
