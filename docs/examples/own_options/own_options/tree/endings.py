"""Words with the same ending share most of their path: words are sorted by their reversed spelling, and halved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.trees import Tree, balanced_tree
from lmtool.trees.tree import TreeWords


@dataclass(slots=True)
class EndingsTree(TreeConfig):
    """The words sorted by their reversed spelling, halved repeatedly."""

    def build(self, words: TreeWords) -> Tree:
        """Return the tree."""
        order = sorted(range(len(words.words)), key=lambda word: words.words[word][::-1])
        return balanced_tree(np.array(order, dtype=np.int64))
