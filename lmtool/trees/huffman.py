r"""Huffman's code of the words' counts: the shortest paths on average.

.. math::

    \min_{\text{trees}} \sum_w c(w)\,d(w) \qquad H \le \frac{\sum_w c(w)\,d(w)}{\sum_w c(w)} < H + 1

d(w) is the depth of w and H the entropy of the unigrams in bits. The two lightest trees are joined until one is left.

Source: Huffman (1952), "A method for the construction of minimum-redundancy codes", Proceedings of the IRE 40; for
    softmax Mikolov et al. (2013), "Distributed representations of words and phrases and their compositionality", NIPS.
Complexity: O(W log W) to build over W words.
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
