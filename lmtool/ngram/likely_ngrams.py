"""The n-grams that a language model finds likely and a text does not have, to be added to those of a back-off model.

What a network knows better than a smoother is mostly about words that have not followed a context. Deoras, Mikolov,
Kombrink, Karafiat & Khudanpur (2011) draw words from the network, and count them. Here the most likely words at each
place of a text are taken themselves: with as many words a place they are the same n-grams but for chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.scoring import find_all_contexts
from lmtool.ngram.table import BackoffTable
from lmtool.ngram.trie import TrieBuilder, ngram_keys

Keys = npt.NDArray[np.uint64]
MERGE = 1 << 24  # keys that wait to be merged


class LikelyNgrams:
    """Gathers the n-grams of a table's contexts and the `most` likely words after each."""

    def __init__(self, table: BackoffTable, most: int) -> None:
        self.table, self.most = table, most
        width = TrieBuilder(table.vocabulary_size).word_width
        self._width = width
        self._keys = [_own_keys(table, k, width) for k in range(2, table.order + 1)]
        self._new: list[list[Keys]] = [[] for _ in self._keys]

    def add(self, contexts: IntArray, log_p: FloatArray) -> None:
        """Take N places: their contexts `[N, n-1]` as the table reads them, and the other model's log p `[N, V]`."""
        trie, most = self.table.trie, min(self.most, log_p.shape[1])
        likely = np.argpartition(-log_p, most - 1, axis=1)[:, :most]
        possible = np.take_along_axis(log_p, likely, axis=1) > -np.inf
        nodes = np.empty((len(contexts), self.table.order), dtype=np.int64)  # of m words in column m
        find_all_contexts(*trie.nodes.searching, self.table.bos, contexts, nodes)
        for m in range(1, self.table.order):
            met = nodes[:, m] >= 0
            within = nodes[met, m] - trie.first(m)
            keys = ngram_keys(within[:, None], likely[met], self._width)[possible[met]]
            waiting = self._new[m - 1]
            waiting.append(np.unique(keys))
            if sum(map(len, waiting)) > MERGE:
                self._new[m - 1] = [np.unique(np.concatenate(waiting))]

    def extended(self) -> BackoffTable:
        """The table with these n-grams as well, with probability 0: they are to be given one."""
        table = self.table
        builder = TrieBuilder(table.vocabulary_size)
        numbers = np.arange(table.vocabulary_size)  # of the contexts of the order below among the new table's
        log_probs = [table.log_probs(0, table.vocabulary_size)]
        for k, (own, new) in enumerate(zip(self._keys, self._new, strict=True), start=2):
            before = np.union1d(own, np.concatenate([own[:0], *new]))  # by the table's own numbers of contexts
            shift, low = np.uint64(self._width), (np.uint64(1) << np.uint64(self._width)) - np.uint64(1)
            builder.add(ngram_keys(numbers[(before >> shift).astype(np.int64)], before & low, self._width))
            numbers = np.searchsorted(before, own)
            log_prob = np.full(len(before), -np.inf, dtype=np.float32)
            log_prob[numbers] = table.log_probs(table.trie.first(k), table.trie.first(k + 1))
            log_probs.append(log_prob)
        trie = builder.finish()
        log_backoff = np.zeros(trie.first(trie.order), dtype=np.float32)
        return replace(table, trie=trie, log_prob=np.concatenate(log_probs), log_backoff=log_backoff)


def _own_keys(table: BackoffTable, k: int, width: int) -> Keys:
    """The keys of the table's n-grams of order k, ascending."""
    trie = table.trie
    keys: Keys = ngram_keys(trie.contexts(k), trie.words(k, 0, trie.sizes[k - 1]), width)
    return keys
