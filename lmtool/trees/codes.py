"""Trees from their codes, and the codes of a tree, as strings of 0 and 1."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from lmtool.errors import UserError
from lmtool.trees.tree import Tree, require_tree


def code_strings(tree: Tree) -> list[str]:
    """The code of each leaf, `[L]` strings of 0 and 1. Raises ValueError for what is no Tree."""
    require_tree("code_strings: tree", tree)
    text = (tree.paths.bits + np.uint8(ord("0"))).tobytes().decode("ascii")
    offsets = tree.paths.offsets.tolist()
    return [text[a:b] for a, b in itertools.pairwise(offsets)]


def code_string(tree: Tree, leaf: int) -> str:
    """The code of one leaf, 0 to L-1. Raises ValueError for another one, and for what is no Tree."""
    require_tree("code_string: tree", tree)
    if not isinstance(leaf, int | np.integer) or not 0 <= leaf < tree.leaves:
        raise ValueError(f"code_string: leaf must be from 0 to {tree.leaves - 1:,}; got {leaf}")
    start, end = tree.paths.offsets[leaf : leaf + 2]
    return "".join(str(bit) for bit in tree.paths.bits[start:end])


def from_codes(codes: Sequence[tuple[int, str]], names: Sequence[str] | None = None) -> Tree:
    """The tree of codes given as (word id, string of 0 and 1), one or more of each word from 0 to the highest.

    names: what to call the words in errors; those without one are their ids. Raises UserError where the codes are not a
    prefix code, leave a place of the tree empty, miss a word, or hold other characters.
    """

    def name(word: int) -> str:
        return repr(names[word]) if names is not None and 0 <= word < len(names) else str(word)

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
                raise UserError(f"{name(seen[code])} and {name(word)} have the same code {code}: not a prefix code")
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
                    f"the code {below[0]} of {name(short)} begins that of {name(long)}, {below[1]}: not a prefix code"
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
