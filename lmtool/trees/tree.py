"""A binary tree whose leaves are words: the code of a word is the path from the root to its leaf, as bits.

Legend of shapes: W words (those that can be predicted: ids 0 to W-1), L leaves, N = L-1 inner nodes, P the sum of
the lengths of all codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import IntArray, as_array

if TYPE_CHECKING:
    from lmtool.data.split import Split

Int32s = npt.NDArray[np.int32]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Paths:
    """The paths to all leaves, concatenated.

    offsets: `[L + 1]`, the start of each leaf's path. nodes: `[P]`, the inner nodes on it, root first. bits: `[P]`, the
    decision at each node, 1 for the second child.

    >>> from lmtool.trees import balanced_tree
    >>> paths = balanced_tree([0, 1, 2]).paths  # codes 00, 01 and 1
    >>> paths.offsets.tolist(), paths.nodes.tolist(), paths.bits.tolist()
    ([0, 2, 4, 5], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1])
    """

    offsets: IntArray
    nodes: Int32s
    bits: Bits


@dataclass(frozen=True)
class Tree:
    """Inner nodes and leaves; every inner node has two children, so that the Kraft sum is 1.

    children: int32 `[N, 2]`, the children for bit 0 and bit 1: an inner node if 0 or more, else leaf -1 - child. The
    root is node 0, and a node's number is below its children's. leaf_words: int32 `[L]`, the word of each leaf, in
    ascending order: all words from 0 to W-1, each once, or once per code if a word has several. With one code per
    word, leaf and word have the same number. A tree of one word has one leaf and no inner node.

    Both may also be arrays of other integers, or lists. Raises ValueError if they do not form such a tree.

    >>> from lmtool.trees import Tree
    >>> tree = Tree([[-1, 1], [-2, -3]], [0, 1, 2])  # the root's children: leaf 0, and node 1 with leaves 1 and 2
    >>> tree.words, tree.nodes, tree.depths.tolist()
    (3, 2, [1, 2, 2])
    """

    children: Int32s
    leaf_words: Int32s

    def __post_init__(self) -> None:
        for name in ("children", "leaf_words"):
            object.__setattr__(self, name, as_array(f"Tree: {name}", getattr(self, name)))
        reason = self._invalid()
        if reason is not None:
            raise ValueError(f"not a tree: {reason}")
        for name in ("children", "leaf_words"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int32))

    def _invalid(self) -> str | None:
        """Return why the arrays do not form a tree, or None if they do."""
        if not all(np.issubdtype(array.dtype, np.signedinteger) for array in (self.children, self.leaf_words)):
            return "its nodes and words must be integers"
        leaves = self.leaf_words.size
        nodes = leaves - 1
        if self.leaf_words.shape != (leaves,) or self.children.shape != (nodes, 2):
            return "a binary tree has one leaf more than inner nodes"
        below = np.sort(self.children, axis=None)
        if not np.array_equal(below, np.r_[-leaves:0, 1:nodes][: 2 * nodes]):
            return "each leaf and each inner node except the root must have one parent"
        if ((self.children >= 0) & (self.children <= np.arange(nodes)[:, None])).any():
            return "parents must come before their children"
        steps = np.diff(self.leaf_words, prepend=-1)
        if steps[0] != 1 or not ((steps == 0) | (steps == 1)).all():
            return "every word must have a leaf, in ascending order"
        return None

    @property
    def words(self) -> int:
        """Number of words, W."""
        return int(self.leaf_words[-1]) + 1

    @property
    def nodes(self) -> int:
        """Number of inner nodes, N."""
        return len(self.children)

    @property
    def leaves(self) -> int:
        """Number of leaves, L."""
        return len(self.leaf_words)

    @cached_property
    def word_leaves(self) -> IntArray:
        """First leaf of each word, int64 `[W + 1]`."""
        return np.searchsorted(self.leaf_words, np.arange(self.words + 1)).astype(np.int64)

    @cached_property
    def places(self) -> Int32s:
        """Children as indices of an array of the inner nodes and then the leaves, int32 `[N, 2]`."""
        return np.where(self.children >= 0, self.children, self.nodes - 1 - self.children)

    def levels(self) -> Iterator[Int32s]:
        """Yield the inner nodes of each depth, from the root on."""
        level = np.arange(min(1, self.nodes), dtype=np.int32)
        while len(level):
            yield level
            below = self.places[level]
            level = below[below < self.nodes]

    @cached_property
    def depths(self) -> Int32s:
        """Length of each leaf's code, int32 `[L]`."""
        return np.diff(self.paths.offsets).astype(np.int32)

    @cached_property
    def paths(self) -> Paths:
        """Paths to all leaves."""
        nodes, leaves = self.nodes, self.leaves
        parent = np.zeros(nodes + leaves, dtype=np.int32)
        bit = np.zeros(nodes + leaves, dtype=np.uint8)
        parent[self.places], bit[self.places] = np.arange(nodes)[:, None], np.arange(2)
        depths = np.zeros(nodes + leaves, dtype=np.int32)
        for depth, level in enumerate(self.levels(), start=1):
            depths[self.places[level]] = depth
        offsets = np.concatenate([[0], np.cumsum(depths[nodes:], dtype=np.int64)])
        path_nodes = np.empty(offsets[-1], dtype=np.int32)
        path_bits = np.empty(offsets[-1], dtype=np.uint8)
        # All leaves climb to the root at once, from the last step of their paths to the first.
        at, step = np.arange(nodes, nodes + leaves if nodes else 0, dtype=np.int32), offsets[1:] - 1
        while len(at):
            path_nodes[step], path_bits[step] = parent[at], bit[at]
            at = parent[at]
            at, step = at[at > 0], step[at > 0] - 1
        return Paths(offsets, path_nodes, path_bits)


@dataclass(frozen=True, slots=True)
class TreeWords:
    """The O words that can be predicted, with the data from which trees are built.

    words: by id, without `<s>`. counts: int64 `[O]`, in train. train: reads the train split. run_vectors: returns the
    vectors `[O, D]` of the words in the run folder of a neural model, given its path and whether a word's vector is the
    mean prediction in its contexts in train (True) or its embedding (False).
    """

    words: Sequence[str]
    counts: IntArray
    train: Callable[[], Split]
    run_vectors: Callable[[str, bool], npt.NDArray[np.float32]]


def require_tree(where: str, tree: object) -> None:
    """Raise a ValueError naming `where` if `tree` is not a Tree."""
    if not isinstance(tree, Tree):
        raise ValueError(f"{where} must be a Tree; got a {type(tree).__name__}")


def require_words(where: str, words: Sequence[str], tree: Tree) -> None:
    """Raise a ValueError naming `where` if `words` is not a list of strings, one or more per word of the tree."""
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{where} must be a list of strings; got a {type(words).__name__}")
    if len(words) < tree.words:
        raise ValueError(f"{where} must be the {tree.words:,} of the tree; got {len(words):,}")
