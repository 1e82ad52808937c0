"""A tree of your own, from a text file with a line `word<TAB>code` for each code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING
from lmtool.trees.base import TreeWords
from lmtool.trees.tree import Tree
from lmtool.trees.tree_file import read_tree


@dataclass(slots=True)
class FileTree(TreeConfig):
    """Your own: a line for each word, with its code."""

    path: str = MISSING

    def build(self, words: TreeWords) -> Tree:
        """The tree of the file. Raises UserError, naming the file, where it does not fit the words."""
        return read_tree(Path(self.path), words.words)
