"""Builders of trees from lists and counts of words (bisection, Huffman, classes), and of one tree from several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np

from lmtool.errors import UserError
from lmtool.system.arrays import IntArray, whole_numbers, word_counts
from lmtool.trees.tree import Int32s, Tree


def arrange_tree(children: Int32s, root: int, leaf_words: IntArray) -> Tree:
    """Build the Tree of nodes in any order.

    children: `[N, 2]`, as in Tree. root: the node without a parent. leaf_words: `[L]`, each leaf's word, in any order.
    """
    children = np.ascontiguousarray(children, dtype=np.int32).reshape(-1, 2)
    levels = [np.array([root])[: len(children)]]
    while len(levels[-1]):
        below = children[levels[-1]]
        levels.append(below[below >= 0])
    nodes, leaves = np.concatenate(levels), np.argsort(leaf_words, kind="stable")  # breadth first; by their words
    place = np.empty(len(nodes) + len(leaves), dtype=np.int32)  # of each node and, from the end, each leaf
    place[nodes], place[-1 - leaves] = np.arange(len(nodes)), -1 - np.arange(len(leaves))
    return Tree(place[children[nodes]], leaf_words[leaves].astype(np.int32))


def graft(top: Tree, parts: Sequence[Tree], words: Sequence[IntArray]) -> Tree:
    """Replace each leaf g of `top`, a group, by the root of parts[g].

    top: a tree over G groups with one code each. words: the ids of each part's words in the whole tree.
    """
    nodes_at = top.nodes + np.cumsum([0, *(part.nodes for part in parts)])
    leaves_at = np.cumsum([0, *(part.leaves for part in parts)])
    inner = np.array([part.nodes > 0 for part in parts])
    roots = np.where(inner, nodes_at[:-1], -1 - leaves_at[:-1])  # [G]
    children = [np.where(top.children >= 0, top.children, roots[-1 - np.minimum(top.children, -1)])]
    for part, node, leaf in zip(parts, nodes_at.tolist(), leaves_at.tolist(), strict=False):
        children.append(np.where(part.children >= 0, part.children + node, part.children - leaf))
    leaf_words = np.concatenate([ids[part.leaf_words] for part, ids in zip(parts, words, strict=True)])
    return arrange_tree(np.concatenate(children), 0, leaf_words.astype(np.int64))


def union(trees: list[Tree]) -> Tree:
    """Join trees over the same words as the leaves of a balanced tree."""
    every = np.arange(trees[0].words)
    return graft(balanced_tree(np.arange(len(trees))), trees, [every] * len(trees))


def bisection_tree(order: IntArray, cut: Callable[[IntArray, IntArray], IntArray]) -> Tree:
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


def balanced_tree(order: IntArray | Sequence[int], split: str = "ceil") -> Tree:
    """Halve the list of all words until single words are left.

    order: int64 `[W]`, the ids 0 to W-1, each once; also a tensor on the CPU or a list. Neighbors in it share most of
    their code: in an alphabetical list, words with the same first letters. All depths are log2 W, rounded down or up.
    split: whether the first half of an odd number of words gets one more (ceil) or one less (floor). Raises ValueError
    if order is not the ids 0 to W-1, each once, or split is another word.

    >>> from lmtool.trees import balanced_tree, code_strings
    >>> code_strings(balanced_tree([2, 0, 1]))  # of words 0, 1 and 2
    ['01', '1', '00']
    """
    order = whole_numbers("balanced_tree: order", order, ("W",))
    if not len(order) or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError(f"balanced_tree: order must have the ids 0 to W-1, one or more, each once; got {order}")
    more = {"ceil": 1, "floor": 0}.get(split)
    if more is None:
        raise ValueError(f"balanced_tree: split must be ceil or floor; got {split!r}")
    return bisection_tree(order, lambda starts, ends: (starts + ends + more) // 2)


def random_tree(words: int, seed: int) -> Tree:
    """Build the balanced tree over `words` words in random order; the same seed gives the same tree.

    Raises ValueError for less than one word and for a seed below 0.

    >>> from lmtool.trees import random_tree
    >>> int(random_tree(1000, seed=1).depths.max())
    10
    """
    if not isinstance(words, int | np.integer) or words < 1:
        raise ValueError(f"random_tree: words must be a whole number of 1 or more; got {words}")
    return balanced_tree(np.random.default_rng(seed).permutation(words).astype(np.int64))


def frequency_tree(counts: IntArray) -> Tree:
    """Cut the list of words, most frequent first, where the counts of the two parts are closest (Fano 1949).

    counts: int64 `[W]`, 0 or more; also a tensor on the CPU or a list. A word that does not occur counts as half an
    occurrence, so that such words are halved like others. Of two equally good cuts, the one with the shorter first part
    is taken. Raises ValueError if `counts` are not counts.

    >>> from lmtool.trees import code_strings, frequency_tree
    >>> code_strings(frequency_tree([4, 2, 1, 1]))
    ['0', '10', '110', '111']
    """
    counts = word_counts("frequency_tree: counts", counts)
    order = np.argsort(-counts, kind="stable")
    weights = np.maximum(2 * counts[order], 1)
    before = np.concatenate([[0], np.cumsum(weights)])  # [W + 1]

    def cut(starts: IntArray, ends: IntArray) -> IntArray:
        both = before[starts] + before[ends]
        above = np.searchsorted(2 * before, both)
        nearer_below = both - 2 * before[above - 1] <= 2 * before[above] - both
        middles: IntArray = np.clip(above - nearer_below, starts + 1, ends - 1)
        return middles

    return bisection_tree(order.astype(np.int64), cut)


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
            # On a tie, take the leaf: among the shortest codes, this minimizes the longest.
            if leaf < len(weights) and (inner >= node or weights[leaf] <= sums[inner]):
                children[node, side] = -1 - leaf
                total += weights[leaf]
                leaf += 1
            else:
                children[node, side] = inner
                total += sums[inner]
                inner += 1
        sums[node] = total


def huffman_tree(counts: IntArray) -> Tree:
    """Build the tree over words that minimizes the sum of count times depth over all prefix codes (Huffman 1952).

    counts: int64 `[W]`, 0 or more; also a tensor on the CPU or a list. Of words with equal counts the one with the
    higher id is joined first. The heavier child is child 0. Takes O(W log W) time. Raises ValueError if `counts` are
    not counts.

    >>> from lmtool.trees import code_strings, huffman_tree
    >>> [len(code) for code in code_strings(huffman_tree([4, 2, 1, 1]))]
    [1, 2, 3, 3]
    """
    counts = word_counts("huffman_tree: counts", counts)
    words = len(counts)
    # Most frequent first, among equals the lower id first, then reversed.
    order = np.argsort(-counts, kind="stable")[::-1]
    children = np.empty((words - 1, 2), dtype=np.int32)
    _join(counts[order], np.empty(words - 1, dtype=np.int64), children)
    return arrange_tree(children, words - 2, order.astype(np.int64))


def class_of_words(counts: IntArray, number: int | None, *, key: str = "tree.classes") -> IntArray:
    """Return the class of each word, int64 `[W]`, from 0 on and ascending; no class is empty (Goodman 2001).

    counts: int64 `[W]`, most frequent first, as in a vocabulary: classes are cut in the order of the ids. number: of
    classes, 1 to W; None: about the square root of W, which makes both levels of a softmax equally long. Each class
    gets about an equal share of the counts that earlier classes leave; a word that does not occur counts as half an
    occurrence. key: the name of the setting, for an error.
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


def classes_tree(counts: IntArray, number: int | None) -> Tree:
    """Build a Huffman tree over `number` classes of words by frequency, and a balanced tree in each class.

    counts: int64 `[W]`, in any order; also a tensor on the CPU or a list. number: None for about the square root of W.
    Raises UserError unless there are from 1 to W classes, and ValueError if `counts` are not counts.

    >>> from lmtool.trees import classes_tree
    >>> classes_tree([5, 4, 3, 2, 1, 1], 2).depths.tolist()
    [2, 2, 3, 3, 3, 3]
    """
    counts = word_counts("classes_tree: counts", counts)
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    class_of = class_of_words(counts[order], number)
    ends = np.searchsorted(class_of, np.arange(1, class_of[-1] + 1))
    members = np.split(order, ends)
    tree_by_size = {size: balanced_tree(np.arange(size)) for size in {len(group) for group in members}}
    top = huffman_tree(np.bincount(class_of, weights=counts[order]).astype(np.int64))
    return graft(top, [tree_by_size[len(group)] for group in members], members)
