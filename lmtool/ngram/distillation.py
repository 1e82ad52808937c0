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

from dataclasses import replace
from typing import Any

import numba
import numpy as np

from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.packed import read
from lmtool.ngram.pruning import renormalised
from lmtool.ngram.scoring import find_all_contexts
from lmtool.ngram.table import BackoffTable, log
from lmtool.ngram.trie_search import first_child


class ExpectedProbabilities:
    """Sums of another model's probabilities over the places of a text, for each n-gram of a table.

    sums: of p(w|c_t) for each node hw of the table's trie, over the places after h; 0 for words alone.
    places: how often each context h was met. Both float64.
    """

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self.sums = np.zeros(sum(table.sizes))
        self.places = np.zeros(table.trie.first(table.order) if table.order > 1 else 0)

    def add(self, contexts: IntArray, log_p: FloatArray) -> None:
        """Take N places: their contexts `[N, n-1]` as the table reads them, and the other model's log p `[N, V]`."""
        trie = self.table.trie
        nodes = np.empty((len(contexts), self.table.order), dtype=np.int64)  # of m words in column m
        find_all_contexts(*trie.nodes.searching, self.table.bos, contexts, nodes)
        _add(*trie.nodes.searching, nodes, np.exp(log_p, dtype=np.float64), self.sums, self.places)

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


@numba.njit(cache=True, nogil=True)
def _add(
    uni: Any,
    base: Any,
    starts: Any,
    width: Any,
    words: Any,
    word_width: int,
    total: int,
    nodes: Any,
    p: Any,
    sums: Any,
    places: Any,
) -> None:
    size = len(uni)
    for t in range(len(nodes)):
        for m in range(1, nodes.shape[1]):
            node = nodes[t, m]
            if node < 0:
                continue
            places[node] += 1
            begin = first_child(uni, base, starts, width, node)
            end = min(first_child(uni, base, starts, width, node + 1), total)
            for child in range(max(begin, size), end):
                sums[child] += p[t, read(words, word_width, child - size)]
