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

import numpy as np

from lmtool.config.groups import TreeConfig
from lmtool.system.arrays import word_counts
from lmtool.trees.base import TreeWords
from lmtool.trees.halving import divided
from lmtool.trees.tree import Int64s, Tree


@dataclass(slots=True)
class FrequencyTree(TreeConfig):
    """Parts of about equal counts of the list of words by frequency."""

    def build(self, words: TreeWords) -> Tree:
        """The tree of the words' counts."""
        return frequency_tree(words.counts)


def frequency_tree(counts: Int64s) -> Tree:
    """The list, most frequent word first, cut where the counts of the two parts are closest.

    counts: int64 `[W]`, 0 or more; a word that does not occur counts as half an occurrence, so that such words are
    halved like others. Of two cuts that are as good, the one with the shorter first part is taken. counts may also be a
    tensor on the CPU or a list; raises ValueError for what are no counts.
    """
    counts = word_counts("frequency_tree: counts", counts)
    order = np.argsort(-counts, kind="stable")
    weights = np.maximum(2 * counts[order], 1)
    before = np.concatenate([[0], np.cumsum(weights)])  # [W + 1]

    def cut(starts: Int64s, ends: Int64s) -> Int64s:
        both = before[starts] + before[ends]
        above = np.searchsorted(2 * before, both)
        nearer_below = both - 2 * before[above - 1] <= 2 * before[above] - both
        middles: Int64s = np.clip(above - nearer_below, starts + 1, ends - 1)
        return middles

    return divided(order.astype(np.int64), cut)
