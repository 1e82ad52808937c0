"""Distillation of any language model into a back-off model (Arisoy, Chen, Ramabhadran & Sethy 2014).

For an n-gram hw the distilled model has the other model's probability of w, averaged over the places of a text after h:

    p(w|h) = mean of p(w|c_t) over the places t whose last words are h, for h of a word or more

with c_t the context of place t as the other model reads it, which may be longer than h. If h is as long as the other
model's context, p(w|h) is exactly its probability; if h is shorter (Arisoy et al. use additional networks with shorter
contexts), the words before h are averaged out. Of all distributions after h this one has the smallest mean relative
entropy from the other model's, over these places. Single words keep their probability: a smoother's unigrams are made
for words after unseen contexts; an average over all places is not.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.query.sums import recompute_backoffs
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.ngram.tables.packed import borrow, read
from lmtool.ngram.tables.trie import TrieBuilder
from lmtool.ngram.tables.trie_search import children_of, find_contexts
from lmtool.system.arrays import Array, FloatArray, IntArray
from lmtool.system.parallel import cut_evenly, run, threads

CONTEXT_WORK = 256  # number of 2-grams whose sums take as long as the longer contexts of a place


class ExpectedProbabilities:
    """Sums of another model's probabilities over the places of a text, for each n-gram of a table.

    sums: sum of p(w|c_t) over the places after h, for each node hw of the table's trie; 0 for single words. places:
    number of places after each context h. Both float64.
    """

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self.sums = np.zeros(sum(table.sizes))
        self.places = np.zeros(table.trie.first(table.order) if table.order > 1 else 0)

    def add(self, contexts: IntArray, p: Array) -> None:
        """Add N places: contexts `[N, n-1]` as the table reads them, and the other model's p `[N, V]`, a float array.

        The sums do not depend on the number of threads: one thread adds all places with the same last word, and other
        places have no contexts in common with them.
        """
        if self.table.order == 1:
            return
        by_last_word = np.argsort(contexts[:, -1], kind="stable")
        contexts = contexts[by_last_word]
        begins = self.table.trie.begins(1, 0, self.table.vocabulary_size)
        pieces = itertools.pairwise(_cuts_between_words(contexts[:, -1], begins))
        cuts = [slice(first, last) for first, last in pieces if first < last]
        nodes, bos, sums = self.table.trie.nodes, self.table.bos, (self.sums, self.places)
        run((_add, nodes, bos, contexts[cut], by_last_word[cut], p, *sums) for cut in cuts)

    def distill(self) -> BackoffTable:
        """Return the table with these probabilities, except after contexts that the text lacks."""
        table = self.table
        log_prob = table.log_prob[:].copy()
        for k in range(2, table.order + 1):
            nodes = table.trie.span(k)
            contexts = self.places[table.trie.span(k - 1)][table.trie.contexts(k)]
            met = contexts > 0
            p: FloatArray = self.sums[nodes][met] / contexts[met]
            log_prob[nodes][met] = log(p)
        return recompute_backoffs(replace(table, log_prob=log_prob, notes=()))


def _cuts_between_words(words: IntArray, begins: IntArray) -> list[int]:
    """Return where to cut places, sorted by last words `[N]`, for threads. begins: the start of each word's 2-grams."""
    work = np.cumsum(np.diff(begins)[words] + CONTEXT_WORK)
    shares = work[-1] * np.arange(1, threads()) // threads() if len(work) else []
    near = np.searchsorted(work, shares)
    return [0, *np.searchsorted(words, words[near]).tolist(), len(words)]


@numba.njit(cache=True, nogil=True)
def _add(nodes: Any, bos: int, contexts: Any, rows: Any, p: Any, sums: Any, places: Any) -> None:
    """Add places with contexts `[N, n-1]`, sorted by their last words, and their probabilities: p `[rows]`."""
    nodes = borrow(nodes)
    size, words, word_width = len(nodes.unigram_starts), nodes.words, nodes.word_width
    met = np.empty((len(contexts), len(nodes.first) - 2), np.int64)  # contexts of m words in column m - 1
    find_contexts(nodes, bos, contexts, met)
    followers = np.empty(size, np.int32)  # the last words of the 2-grams that begin with the last word
    begin: Any = np.int64(0)
    count: Any = np.int64(0)
    for t in range(len(met)):
        row = p[rows[t]]
        node = met[t, 0]
        if t == 0 or node != met[t - 1, 0]:
            begin, end = children_of(nodes, node)
            count = min(end - begin, size)
            for i in range(count):
                followers[i] = read(words, word_width, begin + i - size)
        places[node] += 1
        for i in range(count):
            sums[begin + i] += row[followers[i]]
        for m in range(1, met.shape[1]):
            node = met[t, m]
            if node < 0:
                continue
            places[node] += 1
            first, last = children_of(nodes, node)
            for child in range(first, last):
                sums[child] += row[read(words, word_width, child - size)]


Keys = npt.NDArray[np.uint64]
MAX_WAITING_KEYS = 1 << 24  # before they are merged
WORDS_PER_BLOCK = 128  # words compared at once


class LikelyNgrams:
    """Gathers n-grams that a language model finds likely and a table does not have, to extend the table by.

    What a network knows better than a smoother is mostly about words that have not followed a context. Deoras, Mikolov,
    Kombrink, Karafiat & Khudanpur (2011) draw words from the network and count them. Here the `most` likely words at
    each place of a text are taken; for the same number of words per place these are the same n-grams, up to chance.
    """

    def __init__(self, table: BackoffTable, most: int) -> None:
        self.table, self.most = table, most
        trie, self._builder = table.trie, TrieBuilder(table.vocabulary_size)
        self._keys: list[Keys] = [
            self._builder.keys(trie.contexts(k), trie.words(k, 0, trie.sizes[k - 1])) for k in range(2, trie.order + 1)
        ]
        self._new: list[list[Keys]] = [[] for _ in self._keys]

    def add(self, contexts: IntArray, p: Array) -> None:
        """Add N places: contexts `[N, n-1]` as the table reads them, and the other model's p `[N, V]`, floats."""
        trie = self.table.trie
        likely = most_likely(p, min(self.most, p.shape[1]))
        possible = likely >= 0
        nodes = trie.find_contexts(contexts, self.table.bos, self.table.order - 1)
        for m in range(1, self.table.order):
            met = nodes[:, m - 1] >= 0
            within = nodes[met, m - 1] - trie.first(m)
            keys = self._builder.keys(within[:, None], likely[met])[possible[met]]
            waiting = self._new[m - 1]
            waiting.append(_sort_distinct(keys))
            if sum(map(len, waiting)) > MAX_WAITING_KEYS:
                self._new[m - 1] = [_sort_distinct(np.concatenate(waiting))]

    def extend_table(self) -> BackoffTable:
        """Return the table with these n-grams added, with probability 0, which the caller replaces."""
        table, builder = self.table, self._builder
        numbers = np.arange(table.vocabulary_size)  # numbers of the contexts of the order below in the new table
        log_probs = [table.log_prob[: table.vocabulary_size]]
        for k, (own, new) in enumerate(zip(self._keys, self._new, strict=True), start=2):
            before = _sort_distinct(np.concatenate([own, *new]))  # by the table's numbers of contexts
            width = np.uint64(builder.word_width)
            words = before & ((np.uint64(1) << width) - np.uint64(1))
            builder.add(builder.keys(numbers[(before >> width).astype(np.int64)], words))
            numbers = np.searchsorted(before, own)
            log_prob = np.full(len(before), -np.inf, dtype=np.float32)
            log_prob[numbers] = table.log_prob[table.trie.span(k)]
            log_probs.append(log_prob)
        trie = builder.finish()
        log_backoff = np.zeros(trie.first(trie.order), dtype=np.float32)
        return replace(table, trie=trie, log_prob=np.concatenate(log_probs), log_backoff=log_backoff)


def most_likely(p: Array, most: int) -> IntArray:
    """Return the `most` likely words by p `[N, V]`, unordered, with -1 instead of words with p = 0: `[N, most]`."""
    words = np.empty((len(p), most), dtype=np.int64)
    run((_most_likely, p[first:last], words[first:last]) for first, last in cut_evenly(len(p)) if first < last)
    return words


@numba.njit(cache=True, nogil=True)
def _most_likely(p: Any, words: Any) -> None:
    """Write the most likely words into words `[N, K]`; the plain form is np.argpartition, one row after the other.

    Each row is a heap: the p of word i is at most that of words 2i + 1 and 2i + 2 below it.
    """
    most = words.shape[1]
    heap = np.empty(most, p.dtype)
    for t in range(len(p)):
        row, chosen = p[t], words[t]
        for i in range(most):
            heap[i] = 0
            chosen[i] = -1
        for first in range(0, len(row), WORDS_PER_BLOCK):
            last = min(first + WORDS_PER_BLOCK, len(row))
            above = 0  # words above the heap's least, counted without a branch first: few blocks have any
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


def _sort_distinct(keys: Keys) -> Keys:
    """Sort keys `[M]` in place and return the distinct ones. np.unique hashes, which takes 16 times as long."""
    keys.sort()
    distinct: Keys = keys[np.append(keys[:1] == keys[:1], keys[1:] != keys[:-1])]
    return distinct
