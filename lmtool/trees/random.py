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

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require_seed
from lmtool.trees.base import TreeWords
from lmtool.trees.bisection import random_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class RandomTree(TreeConfig):
    """Halves of a shuffled list of words."""

    seed: int = MISSING

    def __post_init__(self) -> None:
        require_seed("tree.seed", self.seed)

    def build(self, words: TreeWords) -> Tree:
        """Build the tree of the seed, whatever the words."""
        return random_tree(len(words.words), self.seed)
