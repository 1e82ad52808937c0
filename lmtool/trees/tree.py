"""A binary tree whose leaves are words: the code of a word is the way from the root to its leaf.

Legend of shapes: W words (those that can be predicted: ids 0 to W-1), L leaves, N = L-1 inner nodes, P the lengths
of all codes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Paths:
    """The codes of all leaves, one after the other.

    offsets: `[L + 1]`, where each leaf's code begins. nodes: `[P]`, the inner nodes on the way, the root first.
    bits: `[P]`, 1 where the way goes to the second child.
    """

    offsets: Int64s
    nodes: Int32s
    bits: Bits


@dataclass(frozen=True)
class Tree:
    """Inner nodes and leaves; every inner node has two children, so that the Kraft sum is 1.

    children: `[N, 2]`; the child that bit 0 and the one that bit 1 leads to: an inner node where it is 0 or more, else
    leaf -1 - child. The root is node 0, and a node's number is below its children's. leaf_words: `[L]`, the word of
    each leaf, in ascending order: all words of 0 to W-1, each once or, where a word has several codes, more often.
    With one code a word, leaf and word have the same number. A tree of one word has one leaf and no inner node.
    """

    children: Int32s
    leaf_words: Int32s

    def __post_init__(self) -> None:
        nodes, leaves = len(self.children), len(self.leaf_words)
        assert self.children.shape == (nodes, 2) and nodes == leaves - 1, "a binary tree has one leaf more than nodes"
        below = np.sort(self.children, axis=None)
        assert np.array_equal(below, np.r_[-leaves:0, 1:nodes][: 2 * nodes]), "each node and leaf has one parent"
        assert (self.children == 0).sum() == 0 and (self._parents_first()), "parents stand before their children"
        steps = np.diff(self.leaf_words, prepend=-1)
        assert ((steps == 0) | (steps == 1)).all() and steps[0] == 1, "every word has a leaf, in ascending order"

    def _parents_first(self) -> bool:
        own = np.arange(len(self.children))[:, None]
        return bool(((self.children < 0) | (self.children > own)).all())

    @property
    def words(self) -> int:
        """W."""
        return int(self.leaf_words[-1]) + 1

    @property
    def nodes(self) -> int:
        """N, the inner nodes."""
        return len(self.children)

    @property
    def leaves(self) -> int:
        """L."""
        return len(self.leaf_words)

    @cached_property
    def word_leaves(self) -> Int64s:
        """`[W + 1]`: where each word's leaves begin."""
        return np.searchsorted(self.leaf_words, np.arange(self.words + 1)).astype(np.int64)

    @cached_property
    def depths(self) -> Int32s:
        """`[L]`: the length of each leaf's code."""
        return np.diff(self.paths.offsets).astype(np.int32)

    @cached_property
    def paths(self) -> Paths:
        """The codes of all leaves."""
        nodes, leaves = self.nodes, self.leaves
        parent = np.zeros(nodes + leaves, dtype=np.int32)  # of inner nodes, then of leaves
        bit = np.zeros(nodes + leaves, dtype=np.uint8)
        for side in (0, 1):
            child = self.children[:, side]
            place = np.where(child >= 0, child, nodes - 1 - child)
            parent[place] = np.arange(nodes)
            bit[place] = side
        # All leaves climb to the root side by side.
        at = np.arange(nodes, nodes + leaves)
        climbed: list[tuple[Int64s, Int64s]] = []  # (leaves still below the root, where they stand)
        climbing = np.arange(leaves) if nodes else np.arange(0)
        while len(climbing):
            climbed.append((climbing, at))
            at = parent[at].astype(np.int64)
            climbing, at = climbing[at > 0], at[at > 0]
        depths = np.zeros(leaves, dtype=np.int64)
        for who, _ in climbed:
            depths[who] += 1
        offsets = np.concatenate([[0], np.cumsum(depths)])
        path_nodes = np.empty(offsets[-1], dtype=np.int32)
        path_bits = np.empty(offsets[-1], dtype=np.uint8)
        for back, (who, where) in enumerate(climbed, start=1):
            place = offsets[who + 1] - back
            path_nodes[place] = parent[where]
            path_bits[place] = bit[where]
        return Paths(offsets, path_nodes, path_bits)


def from_codes(codes: Sequence[tuple[int, str]], names: Sequence[str] | None = None) -> Tree:
    """The tree of codes given as (word id, string of 0 and 1), a word once or more often.

    names: what to call the words in errors. Raises UserError where the codes are no prefix code, leave a place of the
    tree empty, miss a word of 0 to the highest, or hold other characters.
    """

    def name(word: int) -> str:
        return repr(names[word]) if names is not None else str(word)

    if not codes:
        raise UserError("a tree without words: give each word a code of 0 and 1")
    missing = set(range(max(word for word, _ in codes) + 1)) - {word for word, _ in codes}
    if missing:
        raise UserError(f"the tree misses {len(missing)} words, such as {name(min(missing))}: give each one a code")
    for word, code in codes:
        if set(code) - {"0", "1"} or (not code and len(codes) > 1):
            raise UserError(f"the code {code!r} of {name(word)} must be made of 0 and 1, one or more")
    leaves = {  # by code, in the order of the words
        code: (leaf, word) for leaf, (word, code) in enumerate(sorted(codes, key=lambda item: item[0]))
    }
    if len(leaves) < len(codes):
        seen: dict[str, int] = {}
        for word, code in codes:
            if code in seen:
                raise UserError(f"{name(seen[code])} and {name(word)} have the same code {code}: no prefix code")
            seen[code] = word
    # In the order of strings a code that begins with another one follows it, perhaps not at once.
    children: list[list[int]] = []
    waiting: list[tuple[list[str], int, int, int]] = [(sorted(leaves), 0, -1, 0)]  # codes, depth, parent, side
    while waiting:
        following: list[tuple[list[str], int, int, int]] = []
        for below, depth, parent, side in waiting:
            if len(below) == 1 and len(below[0]) == depth:
                if parent >= 0:
                    children[parent][side] = -1 - leaves[below[0]][0]
                continue
            if len(below[0]) == depth:
                short, long = leaves[below[0]][1], leaves[below[1]][1]
                raise UserError(
                    f"the code {below[0]} of {name(short)} begins that of {name(long)}, {below[1]}: no prefix code"
                )
            node = len(children)
            children.append([0, 0])
            if parent >= 0:
                children[parent][side] = node
            halves = [[code for code in below if code[depth] == bit] for bit in "01"]
            for bit, half in enumerate(halves):
                if not half:
                    empty = below[0][:depth] + str(bit)
                    raise UserError(f"no code begins with {empty}, but {below[0]} needs it: the Kraft sum is below 1")
                following.append((half, depth + 1, node, bit))
        waiting = following
    words = np.array(sorted(word for word, _ in codes), dtype=np.int32)
    return Tree(np.array(children, dtype=np.int32).reshape(-1, 2), words)
