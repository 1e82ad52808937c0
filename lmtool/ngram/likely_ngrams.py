"""The n-grams that a language model finds likely and a text does not have, to be added to those of a back-off model.

What a network knows better than a smoother is mostly about words that have not followed a context. Deoras, Mikolov,
Kombrink, Karafiat & Khudanpur (2011) draw words from the network, and count them. Here the most likely words at each
place of a text are taken themselves: with as many words a place they are the same n-grams but for chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.trie import TrieBuilder, ngram_keys
from lmtool.system.arrays import IntArray
from lmtool.system.parallel import cut_evenly, run

Keys = npt.NDArray[np.uint64]
MERGE = 1 << 24  # keys that wait to be merged
BLOCK = 128  # words that are compared at once


class LikelyNgrams:
    """Gathers the n-grams of a table's contexts and the `most` likely words after each."""

    def __init__(self, table: BackoffTable, most: int) -> None:
        self.table, self.most = table, most
        width = TrieBuilder(table.vocabulary_size).word_width
        self._width = width
        self._keys = [_own_keys(table, k, width) for k in range(2, table.order + 1)]
        self._new: list[list[Keys]] = [[] for _ in self._keys]

    def add(self, contexts: IntArray, p: npt.NDArray[Any]) -> None:
        """Take N places: their contexts `[N, n-1]` as the table reads them, and the other model's p `[N, V]`, float32
        or float64.
        """
        trie = self.table.trie
        likely = most_likely(p, min(self.most, p.shape[1]))
        possible = likely >= 0
        nodes = trie.find_contexts(contexts, self.table.bos, self.table.order - 1)
        for m in range(1, self.table.order):
            met = nodes[:, m - 1] >= 0
            within = nodes[met, m - 1] - trie.first(m)
            keys = ngram_keys(within[:, None], likely[met], self._width)[possible[met]]
            waiting = self._new[m - 1]
            waiting.append(_distinct(keys))
            if sum(map(len, waiting)) > MERGE:
                self._new[m - 1] = [_distinct(np.concatenate(waiting))]

    def extended(self) -> BackoffTable:
        """The table with these n-grams as well, with probability 0: they are to be given one."""
        table = self.table
        builder = TrieBuilder(table.vocabulary_size)
        numbers = np.arange(table.vocabulary_size)  # of the contexts of the order below among the new table's
        log_probs = [table.log_probs(0, table.vocabulary_size)]
        for k, (own, new) in enumerate(zip(self._keys, self._new, strict=True), start=2):
            before = _distinct(np.concatenate([own, *new]))  # by the table's own numbers of contexts
            shift, low = np.uint64(self._width), (np.uint64(1) << np.uint64(self._width)) - np.uint64(1)
            builder.add(ngram_keys(numbers[(before >> shift).astype(np.int64)], before & low, self._width))
            numbers = np.searchsorted(before, own)
            log_prob = np.full(len(before), -np.inf, dtype=np.float32)
            log_prob[numbers] = table.log_probs(table.trie.first(k), table.trie.first(k + 1))
            log_probs.append(log_prob)
        trie = builder.finish()
        log_backoff = np.zeros(trie.first(trie.order), dtype=np.float32)
        return replace(table, trie=trie, log_prob=np.concatenate(log_probs), log_backoff=log_backoff)


def most_likely(p: npt.NDArray[Any], most: int) -> IntArray:
    """The `most` likeliest words by p `[N, V]`, in no order, -1 in place of words with p = 0: `[N, most]`."""
    words = np.empty((len(p), most), dtype=np.int64)
    run((_most_likely, p[first:last], words[first:last]) for first, last in cut_evenly(len(p)) if first < last)
    return words


@numba.njit(cache=True, nogil=True)
def _most_likely(p: Any, words: Any) -> None:
    """Each row of words `[N, K]` is a heap by p: a word's p is at most that of words 2i + 1 and 2i + 2 below it."""
    most = words.shape[1]
    heap = np.empty(most, p.dtype)
    for t in range(len(p)):
        row, chosen = p[t], words[t]
        for i in range(most):
            heap[i] = 0
            chosen[i] = -1
        for first in range(0, len(row), BLOCK):
            last = min(first + BLOCK, len(row))
            above = 0  # counted first, without a branch: few blocks have any
            for word in range(first, last):
                above += row[word] > heap[0]
            if above == 0:
                continue
            for word in range(first, last):
                value = row[word]
                if not value > heap[0]:
                    continue
                i = 0
                while 2 * i + 1 < most:  # sift down
                    below = 2 * i + 1
                    if below + 1 < most and heap[below + 1] < heap[below]:
                        below += 1
                    if value <= heap[below]:
                        break
                    heap[i], chosen[i] = heap[below], chosen[below]
                    i = below
                heap[i], chosen[i] = value, word


def _distinct(keys: Keys) -> Keys:
    """The distinct ones of keys `[M]`, which are sorted in place, ascending. np.unique hashes: 16 times as long."""
    keys.sort()
    distinct: Keys = keys[np.append(keys[:1] == keys[:1], keys[1:] != keys[:-1])]
    return distinct


def _own_keys(table: BackoffTable, k: int, width: int) -> Keys:
    """The keys of the table's n-grams of order k, ascending."""
    trie = table.trie
    keys: Keys = ngram_keys(trie.contexts(k), trie.words(k, 0, trie.sizes[k - 1]), width)
    return keys
