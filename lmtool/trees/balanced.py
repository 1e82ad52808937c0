r"""Halves of the list of words in alphabetical order: words with the same first letters share most of their path.

.. math::

    \lfloor \log_2 W \rfloor \le d(w) \le \lceil \log_2 W \rceil

d(w) is the depth of word w of W words. The first half of an odd number of words gets one more.

Source: lmtool's own, a baseline beside the random tree of Mnih & Hinton (2009).
Complexity: O(W log W) to build; paths of about log2 W nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.trees.base import TreeWords
from lmtool.trees.bisection import balanced_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class BalancedTree(TreeConfig):
    """Halves of the list of words in alphabetical order."""

    def build(self, words: TreeWords) -> Tree:
        """Build the balanced tree over the words, sorted by code points."""
        order = sorted(range(len(words.words)), key=words.words.__getitem__)
        return balanced_tree(np.array(order, dtype=np.int64))
