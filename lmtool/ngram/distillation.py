"""A language model's probabilities in the n-grams of a back-off model (Arisoy, Chen, Ramabhadran & Sethy 2014).

For an n-gram hw the distilled model has what the other model gives w, on average over the places of a text after h:

    p(w|h) = mean of p(w|c_t) over the places t whose last words are h, for h of a word or more

with c_t the context of place t as the other model reads it, which may be longer than h. An n-gram as long as the other
model's context and a word has that model's very probability; for shorter ones, which Arisoy et al. take from further
networks with shorter contexts, the words before h are averaged out. Of all distributions after h this one has the
smallest mean relative entropy from the other model's, over these places. Single words keep their probability: that of a
smoother is made for words after contexts that it has not seen, which an average over all places is not.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.pruning.entropy import renormalised
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.ngram.tables.compiled import borrowed
from lmtool.ngram.tables.packed import read
from lmtool.ngram.tables.trie_search import children_of, find_contexts
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.parallel import run, threads

Array = npt.NDArray[Any]
CONTEXT_WORK = 256  # 2-grams whose sums take as long as a place's longer contexts


class ExpectedProbabilities:
    """Sums of another model's probabilities over the places of a text, for each n-gram of a table.

    sums: of p(w|c_t) for each node hw of the table's trie, over the places after h; 0 for words alone.
    places: how often each context h was met. Both float64.
    """

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self.sums = np.zeros(sum(table.sizes))
        self.places = np.zeros(table.trie.first(table.order) if table.order > 1 else 0)

    def add(self, contexts: IntArray, p: Array) -> None:
        """Take N places: their contexts `[N, n-1]` as the table reads them, and the other model's p `[N, V]`, float32
        or float64.

        The sums are the same whatever the number of threads: places with the same last word are one thread's, and no
        others have contexts in common with them.
        """
        if self.table.order == 1:
            return
        by_last_word = np.argsort(contexts[:, -1], kind="stable")
        contexts = contexts[by_last_word]
        begins = self.table.trie.begins(1, 0, self.table.vocabulary_size)
        pieces = itertools.pairwise(_cuts_between_words(contexts[:, -1], begins))
        run(
            (
                _add,
                self.table.trie.nodes,
                self.table.bos,
                contexts[first:last],
                by_last_word[first:last],
                p,
                self.sums,
                self.places,
            )
            for first, last in pieces
            if first < last
        )

    def distilled(self) -> BackoffTable:
        """The table with these probabilities and new back-off weights; n-grams after contexts that the text does not
        have keep theirs.
        """
        table = self.table
        log_prob = table.log_probs(0, sum(table.sizes)).copy()
        for k in range(2, table.order + 1):
            nodes = slice(table.trie.first(k), table.trie.first(k + 1))
            contexts = self.places[table.trie.first(k - 1) : table.trie.first(k)][table.trie.contexts(k)]
            met = contexts > 0
            p: FloatArray = self.sums[nodes][met] / contexts[met]
            log_prob[nodes][met] = log(p)
        return renormalised(replace(table, log_prob=log_prob, notes=()))


def _cuts_between_words(words: IntArray, begins: IntArray) -> list[int]:
    """Where to cut places, sorted by their last words `[N]`, for the threads: into parts of about the same work.

    begins: of each word's 2-grams, and of one more word.
    """
    work = np.cumsum(np.diff(begins)[words] + CONTEXT_WORK)
    shares = work[-1] * np.arange(1, threads()) // threads() if len(work) else []
    near = np.searchsorted(work, shares)
    return [0, *np.searchsorted(words, words[near]).tolist(), len(words)]


@numba.njit(cache=True, nogil=True)
def _add(nodes: Any, bos: int, contexts: Any, rows: Any, p: Any, sums: Any, places: Any) -> None:
    """Add places with contexts `[N, n-1]`, sorted by their last words, and their probabilities: p `[rows]`."""
    nodes = borrowed(nodes)
    size, words, word_width = len(nodes.unigram_starts), nodes.words, nodes.word_width
    met = np.empty((len(contexts), len(nodes.first) - 2), np.int64)  # of m words in column m - 1
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
