"""Huffman's code of the words' counts, the shortest paths on average: Huffman (1952).

Mikolov et al. (2013), "Distributed representations of words and phrases", use it for the hierarchical softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import TreeConfig
from lmtool.trees.base import TreeWords
from lmtool.trees.huffman_code import huffman_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class HuffmanTree(TreeConfig):
    """The shortest paths on average."""

    def build(self, words: TreeWords) -> Tree:
        """The tree of the words' counts."""
        return huffman_tree(words.counts)
