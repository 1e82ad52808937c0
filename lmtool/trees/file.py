r"""A tree of your own, from a text file with a line `word<TAB>code` for each code.

.. math::

    \sum_{\text{codes } z} 2^{-|z|} = 1

The codes, of 0 and 1, must be those of a whole binary tree: none begins another, and their Kraft sum is one.

Source: Kraft (1949), "A device for quantizing, grouping, and coding amplitude-modulated pulses".
Complexity: O(number of codes) to read; paths as long as the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING
from lmtool.trees.base import TreeWords
from lmtool.trees.codes import read_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class FileTree(TreeConfig):
    """Your own: a line for each word, with its code."""

    path: str = MISSING

    def build(self, words: TreeWords) -> Tree:
        """The tree of the file. Raises UserError, naming the file, where it does not fit the words."""
        return read_tree(Path(self.path), words.words)
