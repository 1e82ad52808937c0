r"""Huffman's code of the words' counts: the shortest paths on average.

.. math::

    \min_{\text{trees}} \sum_w c(w)\,d(w) \qquad H \le \frac{\sum_w c(w)\,d(w)}{\sum_w c(w)} < H + 1

d(w) is the depth of w and H the entropy of the unigrams in bits. The two lightest trees are joined until one is left.

Source: Huffman (1952), "A method for the construction of minimum-redundancy codes", Proceedings of the IRE 40; for
    softmax Mikolov et al. (2013), "Distributed representations of words and phrases and their compositionality", NIPS.
Complexity: O(W log W) to build over W words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.system.arrays import word_counts
from lmtool.trees.assemble import arranged
from lmtool.trees.base import TreeWords
from lmtool.trees.tree import Int64s, Tree


@dataclass(slots=True)
class HuffmanTree(TreeConfig):
    """The shortest paths on average."""

    def build(self, words: TreeWords) -> Tree:
        """Build the tree of the words' counts."""
        return huffman_tree(words.counts)


@numba.njit(cache=True, nogil=True)
def _join(weights: Any, sums: Any, children: Any) -> None:
    """Join the two lightest trees until one is left.

    weights: `[W]`, ascending. sums, children: `[W - 1]` and `[W - 1, 2]`, written in the order of joining. Joined
    trees come out in ascending order by themselves, so that two queues do the work of a heap.
    """
    leaf, inner = 0, 0  # the lightest leaf and the lightest joined tree that are left
    for node in range(len(sums)):
        total = 0
        for side in range(1, -1, -1):  # the heavier of the two is child 0
            # On a tie the leaf goes first: of all shortest codes those whose longest is shortest.
            if leaf < len(weights) and (inner >= node or weights[leaf] <= sums[inner]):
                children[node, side] = -1 - leaf
                total += weights[leaf]
                leaf += 1
            else:
                children[node, side] = inner
                total += sums[inner]
                inner += 1
        sums[node] = total


def huffman_tree(counts: Int64s) -> Tree:
    """Build the tree over words whose sum of count times depth no prefix code undercuts (Huffman 1952).

    counts: int64 `[W]`, 0 or more; also a tensor on the CPU or a list. Of words with equal counts the one with the
    higher id is joined first. The heavier child is child 0. Takes O(W log W) time. Raises ValueError if `counts` are
    not counts.
    """
    counts = word_counts("huffman_tree: counts", counts)
    words = len(counts)
    # Most frequent first and of equals the lower id first, then backward.
    order = np.argsort(-counts, kind="stable")[::-1]
    children = np.empty((words - 1, 2), dtype=np.int32)
    _join(counts[order], np.empty(words - 1, dtype=np.int64), children)
    return arranged(children, words - 2, order.astype(np.int64))
