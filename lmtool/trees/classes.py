r"""Two levels: classes of words by frequency, then the words of each.

.. math::

    d(w) = d_{\text{Huffman}}(g(w)) + \log_2 |g(w)| \quad \text{(rounded down or up)}

g(w) is the class of w: the words, most frequent first, are cut into classes of about equal counts. The classes have a
Huffman tree, the words of a class a balanced one.

Source: Goodman (2001), "Classes for fast maximum entropy training", ICASSP.
Complexity: O(W log W) to build over W words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require_whole
from lmtool.errors import UserError
from lmtool.system.arrays import word_counts
from lmtool.trees.assemble import graft
from lmtool.trees.base import TreeWords
from lmtool.trees.bisection import balanced_tree
from lmtool.trees.huffman import huffman_tree
from lmtool.trees.tree import Int64s, Tree


@dataclass(slots=True)
class ClassesTree(TreeConfig):
    """Classes by frequency, then the words of each."""

    classes: int | None = MISSING

    def __post_init__(self) -> None:
        require_whole("tree.classes", self.classes, null=True)

    def build(self, words: TreeWords) -> Tree:
        """Build the tree of the words' counts. Raises UserError for more classes than words."""
        return classes_tree(words.counts, self.classes)


def class_of_words(counts: Int64s, number: int | None, *, key: str = "tree.classes") -> Int64s:
    """Return the class of each word, int64 `[W]`, from 0 on and ascending; no class is empty (Goodman 2001).

    counts: int64 `[W]`, most frequent first, as in a vocabulary: classes are cut in the order of the ids. number: of
    classes; None: about the square root of W, which makes both levels of a softmax equally long. Each class gets about
    an equal share of the counts that earlier classes leave; a word that does not occur counts as half an occurrence.
    Raises UserError, naming the setting `key`, unless there are from 1 to W classes.
    """
    words = len(counts)
    classes = max(round(math.sqrt(words)), 1) if number is None else number
    if classes > words:
        raise UserError(f"{key}={classes}: at most {words} with this vocabulary")
    if classes < 1:
        raise UserError(f"{key}={classes}: must be 1 or more")
    before = np.concatenate([[0], np.cumsum(np.maximum(2 * counts, 1))])  # [W + 1]
    starts = [0]
    for left in range(classes - 1, 0, -1):
        target = before[starts[-1]] + (before[-1] - before[starts[-1]]) / (left + 1)
        end = int(np.searchsorted(before, target))
        end -= int(target - before[end - 1] <= before[end] - target)
        starts.append(min(max(end, starts[-1] + 1), words - left))
    return np.repeat(np.arange(classes), np.diff([*starts, words])).astype(np.int64)


def classes_tree(counts: Int64s, number: int | None) -> Tree:
    """Build a Huffman tree over `number` classes of words by frequency, and a balanced tree in each class.

    counts: int64 `[W]`, in any order; also a tensor on the CPU or a list. number: None for about the square root of W.
    Raises UserError unless there are from 1 to W classes, and ValueError if `counts` are not counts.
    """
    counts = word_counts("classes_tree: counts", counts)
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    class_of = class_of_words(counts[order], number)
    ends = np.searchsorted(class_of, np.arange(1, class_of[-1] + 1))
    members = np.split(order, ends)
    of_size = {size: balanced_tree(np.arange(size)) for size in {len(group) for group in members}}
    top = huffman_tree(np.bincount(class_of, weights=counts[order]).astype(np.int64))
    return graft(top, [of_size[len(group)] for group in members], members)
