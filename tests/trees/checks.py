"""What holds of every tree, and codes as strings."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from lmtool.trees.tree import Tree


def codes(tree: Tree) -> list[str]:
    """Return the code of every leaf."""
    return ["".join(map(str, tree.paths.bits[a:b])) for a, b in itertools.pairwise(tree.paths.offsets)]


def check(tree: Tree, words: int, one_code: bool = True) -> None:
    """Kraft sum 1, all words there, no code begins another."""
    assert tree.words == words and tree.nodes == tree.leaves - 1
    if one_code:
        assert tree.nodes == words - 1 and np.array_equal(tree.leaf_words, np.arange(words))
    depths, number = np.unique(tree.depths, return_counts=True)
    kraft = sum(Fraction(int(n), 2 ** int(d)) for d, n in zip(depths, number, strict=True))
    assert kraft == 1
    if tree.leaves < 2000:
        inorder = sorted(codes(tree))
        assert not any(longer.startswith(code) for code, longer in itertools.pairwise(inorder))


def same(one: Tree, other: Tree) -> bool:
    return np.array_equal(one.children, other.children) and np.array_equal(one.leaf_words, other.leaf_words)


def zipf(words: int, total: int = 1_000_000) -> np.ndarray:
    """Counts as words have them, most frequent first, zeros at the end."""
    share = 1 / np.arange(1, words + 1)
    return np.floor(total * share / share.sum()).astype(np.int64)
