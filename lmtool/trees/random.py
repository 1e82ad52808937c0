r"""Halves of a shuffled list of words, again and again: the tree that says nothing about the words.

.. math::

    \lfloor \log_2 W \rfloor \le d(w) \le \lceil \log_2 W \rceil

d(w) is the depth of word w of W words.

Source: Mnih & Hinton (2009), "A scalable hierarchical distributed language model", NIPS, whose better trees are
    learned from a model over it.
Complexity: O(W log W) to build; paths of about log2 W nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require_seed
from lmtool.trees.base import TreeWords
from lmtool.trees.halving import balanced_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class RandomTree(TreeConfig):
    """Halves of a shuffled list of words."""

    seed: int = MISSING

    def __post_init__(self) -> None:
        require_seed("tree.seed", self.seed)

    def build(self, words: TreeWords) -> Tree:
        """The tree of the seed, whatever the words are."""
        return random_tree(len(words.words), self.seed)


def random_tree(words: int, seed: int) -> Tree:
    """The balanced tree over `words` words in random order; the same for the same seed.

    Raises ValueError for less than one word and for a seed below 0.
    """
    if not isinstance(words, int | np.integer) or words < 1:
        raise ValueError(f"random_tree: words must be a whole number of 1 or more; got {words}")
    return balanced_tree(np.random.default_rng(seed).permutation(words).astype(np.int64))
