r"""Several trees at once: each word has a code in every one of them.

.. math::

    p(w|h) = \sum_k p(k|h) \, p_k(w|h)

p_k is the hierarchical softmax over tree k. The trees hang below a balanced one, whose decisions p(k|h) are learned as
all others: together they are one tree, in which a word has several codes. What one divides badly, another may keep
together.

Source: Mnih & Hinton (2009), "A scalable hierarchical distributed language model", NIPS, section 5 (their trees "x 2"
    and "x 4", of one kind with different seeds).
Complexity: as of all its trees together, to build and in each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require
from lmtool.config.settings import option_named
from lmtool.trees.assemble import graft
from lmtool.trees.base import TreeWords
from lmtool.trees.bisection import balanced_tree
from lmtool.trees.tree import Tree

MOST = 16


@dataclass(slots=True)
class UnionTree(TreeConfig):
    """Trees of other options: their names, or mappings of their settings with `kind`."""

    trees: list[Any] = MISSING

    def __post_init__(self) -> None:
        require(2 <= len(self.trees) <= MOST, "tree.trees", self.trees, f"2 to {MOST} options of tree=")
        self._options()

    def build(self, words: TreeWords) -> Tree:
        """All trees below one root. Raises UserError as they do."""
        return union([option.build(words) for option in self._options()])

    def _options(self) -> list[TreeConfig]:
        return [option_named("tree", given, f"tree.trees[{place}]") for place, given in enumerate(self.trees)]


def union(trees: list[Tree]) -> Tree:
    """The tree whose balanced top has these, all over the same words, as its leaves."""
    every = np.arange(trees[0].words)
    return graft(balanced_tree(np.arange(len(trees))), trees, [every] * len(trees))
