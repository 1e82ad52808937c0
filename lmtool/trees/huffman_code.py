"""Huffman's code (1952), "A method for the construction of minimum-redundancy codes"."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.system.arrays import word_counts
from lmtool.trees.assemble import arranged
from lmtool.trees.tree import Int64s, Tree


@numba.njit(cache=True, nogil=True)
def _join(weights: Any, sums: Any, children: Any) -> None:
    """Join the two lightest trees until one is left.

    weights: `[W]`, ascending. sums, children: `[W - 1]` and `[W - 1, 2]`, written in the order of joining. Joined
    trees come out in ascending order by themselves, so two queues do what needs a heap otherwise.
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
    """The tree over words of counts int64 `[W]`, 0 or more: no prefix code has a smaller sum of count times depth.

    Of words with equal counts the one with the higher id is joined first. The heavier child is child 0. It takes
    O(W log W) time. counts may also be a tensor on the CPU or a list; raises ValueError for what are no counts.
    """
    counts = word_counts("huffman_tree: counts", counts)
    words = len(counts)
    # Most frequent first and of equals the lower id first, then backwards.
    order = np.argsort(-counts, kind="stable")[::-1]
    children = np.empty((words - 1, 2), dtype=np.int32)
    _join(counts[order], np.empty(words - 1, dtype=np.int64), children)
    return arranged(children, words - 2, order.astype(np.int64))
