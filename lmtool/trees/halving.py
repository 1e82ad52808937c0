"""Trees by cutting a list of words in two, again and again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lmtool.system.arrays import whole_numbers
from lmtool.trees.tree import Int64s, Tree


def divided(order: Int64s, cut: Callable[[Int64s, Int64s], Int64s]) -> Tree:
    """The tree of a list of all words, int64 `[W]`.

    cut: for pieces of two words or more, [starts[i], ends[i]) of the list, the first positions of their second halves.
    All pieces of one depth are cut at once, without recursion.
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
    """The list of all words halved until single words are left; of an odd number the first half gets one word more.

    order: int64 `[W]`, the ids 0 to W-1, each once. Neighbours in it share most of their code: in an alphabetical list
    words with the same first letters do. All depths are log2 W, rounded down or up. order may also be a tensor on the
    CPU or a list; raises ValueError where it is not the ids 0 to W-1, each once.
    """
    order = whole_numbers("balanced_tree: order", order, ("W",))
    if not len(order) or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError(f"balanced_tree: order must have the ids 0 to W-1, one or more, each once; got {order}")
    return divided(order, lambda starts, ends: (starts + ends + 1) // 2)
