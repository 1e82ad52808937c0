"""Trees from nodes in any order, and trees grafted onto another one's leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from lmtool.trees.tree import Int32s, Int64s, Tree


@numba.njit(cache=True, nogil=True)
def _breadth_first(children: Any, root: int, waiting: Any, ordered: Any) -> None:
    """Write the children, numbered breadth first, to `ordered` `[N, 2]`; waiting: scratch, `[N]`."""
    waiting[0] = root
    last = 1
    for first in range(len(children)):
        node = waiting[first]
        for side in range(2):
            child = children[node, side]
            if child >= 0:
                waiting[last] = child
                ordered[first, side] = last
                last += 1
            else:
                ordered[first, side] = child


def arranged(children: Int32s, root: int, leaf_words: Int64s) -> Tree:
    """The Tree of nodes in any order.

    children: `[N, 2]`, an inner node or leaf -1 - child, as in Tree. root: the node that has no parent (unused where N
    is 0). leaf_words: `[L]`, each leaf's word, in any order. Raises ValueError where they are not those of a tree.
    """
    children = np.ascontiguousarray(children, dtype=np.int32).reshape(-1, 2)
    ordered = np.empty_like(children)
    if len(children):
        _breadth_first(children, root, np.empty(len(children), dtype=np.int32), ordered)
    order = np.argsort(leaf_words, kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    leaf = ordered < 0
    ordered[leaf] = -1 - rank[-1 - ordered[leaf]]
    return Tree(ordered, leaf_words[order].astype(np.int32))


def graft(top: Tree, parts: Sequence[Tree], words: Sequence[Int64s]) -> Tree:
    """The tree in which group g, a leaf of `top`, is replaced by the root of parts[g].

    top: over G groups, one code each. words: for each group `[words of parts[g]]`, the ids of its words in the whole
    tree.
    """
    assert top.leaves == top.words == len(parts) == len(words), "each group has one leaf"
    nodes_at = top.nodes + np.cumsum([0, *(part.nodes for part in parts)])
    leaves_at = np.cumsum([0, *(part.leaves for part in parts)])
    roots = np.array(
        [nodes_at[g] if part.nodes else -1 - leaves_at[g] for g, part in enumerate(parts)], dtype=np.int64
    )  # [G]
    children = np.empty((nodes_at[-1], 2), dtype=np.int32)
    children[: top.nodes] = np.where(top.children >= 0, top.children, roots[-1 - np.minimum(top.children, -1)])
    for g, part in enumerate(parts):
        if part.nodes:
            below = part.children
            children[nodes_at[g] : nodes_at[g + 1]] = np.where(below >= 0, below + nodes_at[g], below - leaves_at[g])
    leaf_words = np.concatenate([ids[part.leaf_words] for part, ids in zip(parts, words, strict=True)])
    return arranged(children, 0, leaf_words.astype(np.int64))
