"""Halves of the list of words in alphabetical order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.trees.base import TreeWords
from lmtool.trees.halving import balanced_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class BalancedTree(TreeConfig):
    """Halves of the list of words in alphabetical order."""

    def build(self, words: TreeWords) -> Tree:
        """The balanced tree over the words, sorted by code points."""
        order = sorted(range(len(words.words)), key=words.words.__getitem__)
        return balanced_tree(np.array(order, dtype=np.int64))
