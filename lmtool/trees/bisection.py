"""Trees by repeatedly cutting a list of words in two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lmtool.system.arrays import whole_numbers, word_counts
from lmtool.trees.tree import Int64s, Tree


def bisected(order: Int64s, cut: Callable[[Int64s, Int64s], Int64s]) -> Tree:
    """Build the tree of a list of all words, int64 `[W]`.

    cut: given pieces of two words or more, [starts[i], ends[i]) of the list, returns the first positions of their
    second halves. All pieces of one depth are cut at once, without recursion.
    """
    words = len(order)
    children = np.empty((words - 1, 2), dtype=np.int32)
    starts, ends = np.zeros(1, dtype=np.int64), np.full(1, words, dtype=np.int64)
    starts, ends = starts[: words - 1], ends[: words - 1]  # a single word is a leaf
    done = 0
    while len(starts):
        middles = cut(starts, ends)
        low, high = np.stack([starts, middles], axis=1), np.stack([middles, ends], axis=1)  # [M, 2]
        inner = high - low > 1
        numbers = done + len(starts) + np.cumsum(inner).reshape(inner.shape) - 1
        children[done : done + len(starts)] = np.where(inner, numbers, -1 - order[low])
        done += len(starts)
        starts, ends = low[inner], high[inner]
    return Tree(children, np.arange(words, dtype=np.int32))


def balanced_tree(order: Int64s) -> Tree:
    """Halve the list of all words until single words are left; the first half of an odd number gets one word more.

    order: int64 `[W]`, the ids 0 to W-1, each once; also a tensor on the CPU or a list. Neighbors in it share most of
    their code: in an alphabetical list, words with the same first letters. All depths are log2 W, rounded down or up.
    Raises ValueError if order is not the ids 0 to W-1, each once.
    """
    order = whole_numbers("balanced_tree: order", order, ("W",))
    if not len(order) or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError(f"balanced_tree: order must have the ids 0 to W-1, one or more, each once; got {order}")
    return bisected(order, lambda starts, ends: (starts + ends + 1) // 2)


def random_tree(words: int, seed: int) -> Tree:
    """Build the balanced tree over `words` words in random order; the same seed gives the same tree.

    Raises ValueError for less than one word and for a seed below 0.
    """
    if not isinstance(words, int | np.integer) or words < 1:
        raise ValueError(f"random_tree: words must be a whole number of 1 or more; got {words}")
    return balanced_tree(np.random.default_rng(seed).permutation(words).astype(np.int64))


def frequency_tree(counts: Int64s) -> Tree:
    """Cut the list of words, most frequent first, where the counts of the two parts are closest (Fano 1949).

    counts: int64 `[W]`, 0 or more; also a tensor on the CPU or a list. A word that does not occur counts as half an
    occurrence, so that such words are halved like others. Of two equally good cuts, the one with the shorter first part
    is taken. Raises ValueError if `counts` are not counts.
    """
    counts = word_counts("frequency_tree: counts", counts)
    order = np.argsort(-counts, kind="stable")
    weights = np.maximum(2 * counts[order], 1)
    before = np.concatenate([[0], np.cumsum(weights)])  # [W + 1]

    def cut(starts: Int64s, ends: Int64s) -> Int64s:
        both = before[starts] + before[ends]
        above = np.searchsorted(2 * before, both)
        nearer_below = both - 2 * before[above - 1] <= 2 * before[above] - both
        middles: Int64s = np.clip(above - nearer_below, starts + 1, ends - 1)
        return middles

    return bisected(order.astype(np.int64), cut)
