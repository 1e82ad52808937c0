"""Words that end alike share most of their path: the words are sorted by their spelling from the end, and halved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.trees import Tree, balanced_tree
from lmtool.trees.base import TreeWords


@dataclass(slots=True)
class EndingsTree(TreeConfig):
    """The words sorted by their reversed spelling, halved again and again."""

    def build(self, words: TreeWords) -> Tree:
        """The tree."""
        order = sorted(range(len(words.words)), key=lambda word: words.words[word][::-1])
        return balanced_tree(np.array(order, dtype=np.int64))
