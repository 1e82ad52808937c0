"""Trees by cutting a list of words in two, again and again: in the middle, or where the counts are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lmtool.trees.tree import Int64s, Tree


def _divide(order: Int64s, cut: Callable[[Int64s, Int64s], Int64s]) -> Tree:
    """The tree of a list of all words `[W]`.

    cut: for pieces of two words or more, [starts[i], ends[i]) of the list, the first places of their second halves.
    All pieces of one depth are cut side by side: no recursion, whatever the depth.
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


def balanced(order: Int64s) -> Tree:
    """The list of all words halved until one is left; of an odd number the first half gets one word more.

    order: `[W]`, the ids 0 to W-1, each once. Neighbours in it share most of their code, so an alphabetical list
    gives words that begin alike codes that begin alike. All depths are log2 W, rounded down or up.
    """
    return _divide(order, lambda starts, ends: (starts + ends + 1) // 2)


def random(words: int, seed: int) -> Tree:
    """The balanced tree of the words in random order: Mnih & Hinton (2009), whose better trees start from it."""
    return balanced(np.random.default_rng(seed).permutation(words).astype(np.int64))


def frequency(counts: Int64s) -> Tree:
    """The list, commonest word first, cut where the counts of the halves are closest: Fano's code (1949).

    counts: `[W]`; a word with none counts as half an occurrence, so that such words are halved like others. Ties
    go to the shorter first half.
    """
    order = np.argsort(-counts, kind="stable")
    weights = np.maximum(2 * counts[order], 1)
    before = np.concatenate([[0], np.cumsum(weights)])  # [W + 1]

    def cut(starts: Int64s, ends: Int64s) -> Int64s:
        both = before[starts] + before[ends]
        above = np.searchsorted(2 * before, both)
        nearer_below = both - 2 * before[above - 1] <= 2 * before[above] - both
        middles: Int64s = np.clip(above - nearer_below, starts + 1, ends - 1)
        return middles

    return _divide(order.astype(np.int64), cut)
