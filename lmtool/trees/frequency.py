r"""The list of words by frequency, cut where both parts have about the same count, again and again: Fano's code.

.. math::

    m = \arg\min_m \left| \sum_{i \le m} c(w_i) - \sum_{i > m} c(w_i) \right|

The sums are over the words of the piece that is cut, most frequent first; a word that does not occur counts as half an
occurrence.

Source: Fano (1949), "The transmission of information", MIT RLE technical report 65.
Complexity: O(W log W) to build over W words; a mean depth near the entropy of the unigrams in bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import TreeConfig
from lmtool.trees.base import TreeWords
from lmtool.trees.bisection import frequency_tree
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class FrequencyTree(TreeConfig):
    """Parts of about equal counts of the list of words by frequency."""

    def build(self, words: TreeWords) -> Tree:
        """Build the tree of the words' counts."""
        return frequency_tree(words.counts)
