"""An n-gram model word by word. A state is the nodes of the last 1, 2, ..., n-1 words, as short as the table allows.

KenLM's minimised state (Heafield 2011, section 4.1): a suffix of what was read counts only while an n-gram of the table
goes on from it or its back-off weight is not one. Hypotheses that differ in nothing else have equal states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import SpecialTokens
from lmtool.ngram.query.bigrams import find_bigrams
from lmtool.ngram.query.ngram_hash import NgramHash, advance_hashed
from lmtool.ngram.query.scoring import SHORT, UNSEEN, table_arrays
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.quantized import parts_of, value_of
from lmtool.ngram.tables.trie_search import children, first_child
from lmtool.system.arrays import FloatArray, IntArray, whole_numbers
from lmtool.system.parallel import cut_evenly, run

PIECE = 1 << 12  # states that are advanced together: their nodes stay in the cache
LEAST = 256  # states that are worth a thread


class NgramScorer:
    """The IncrementalScorer of a back-off table; `width` is n-1."""

    def __init__(
        self,
        table: BackoffTable,
        marks: SpecialTokens,
        bigrams: Callable[[int], tuple[npt.NDArray[np.uint64], int]],
        ngrams: Callable[[int], NgramHash | None],
    ) -> None:
        """bigrams: NgramModel.bigrams_for. ngrams: NgramModel.ngrams_for."""
        self.arrays = table_arrays(table)
        self.bigrams, self.ngrams = bigrams, ngrams
        self.marks = marks
        self.width = table.order - 1
        self._first = table.trie.nodes.first
        self._unigrams = np.append(self.arrays.unigrams, self.arrays.missing)
        eos = -1 if marks.eos is None else marks.eos
        self._numbers = np.array([self.arrays.word_width, marks.bos, eos, table.suffix_closed], dtype=np.int64)

    def initial_state(self, *, sentence_start: bool) -> IntArray:
        """The state after `<s>`; without any words where nothing before is known."""
        state = np.full(self.width, SHORT, dtype=np.int64)
        if sentence_start and self.width:
            state[0] = self.marks.bos
        return state

    def advance(self, states: IntArray, words: IntArray) -> tuple[FloatArray, IntArray]:
        """As IncrementalScorer has it. Raises ValueError for states that are not of this model, too."""
        return self.advance_matched(states, words)[:2]

    def advance_matched(self, states: IntArray, words: IntArray) -> tuple[FloatArray, IntArray, IntArray]:
        """The same with the length of the longest n-gram of the table that ends in each word, int64 `[N]`."""
        words = whole_numbers("advance: words", words, (len(states),), below=self.marks.bos + 1)
        states = np.ascontiguousarray(states, dtype=np.int64)
        if states.shape != (len(words), self.width):
            raise ValueError(f"advance: states must be [{len(words)}, {self.width}]; got {list(states.shape)}")
        if not _are_states(states, self._first):
            raise ValueError("advance: these are not states of this model")
        log_prob, after, matched = np.empty(len(words)), np.empty_like(states), np.ones(len(words), dtype=np.int64)
        pieces = cut_evenly(len(words), max(-(-len(words) // PIECE), 1))
        if len(pieces) == 1 and len(words) >= 2 * LEAST:
            pieces = cut_evenly(len(words))
        arrays = states, words, log_prob, after, matched
        ngrams = self.ngrams(len(words))
        kernel: tuple[Any, ...] = (
            (advance_states, self.arrays, *self.bigrams(len(words)))
            if ngrams is None
            else (advance_hashed, *ngrams, self._unigrams, self._numbers)
        )
        run((*kernel, *(array[a:b] for array in arrays)) for a, b in pieces)
        if ngrams is None and self.marks.eos is not None:
            after[words == self.marks.eos] = self.initial_state(sentence_start=True)
        return log_prob, after, matched


@numba.njit(cache=True, nogil=True)
def _are_states(states: Any, first: Any) -> bool:
    """Whether column m of states `[N, n-1]` has nodes of order m + 1, or marks. first: as in trie.Nodes."""
    for i in range(len(states)):
        for m in range(states.shape[1]):
            node = states[i, m]
            if node < UNSEEN or (node >= 0 and (node < first[m] or node >= first[m + 1])):
                return False
    return True


@numba.njit(cache=True, nogil=True)
def advance_states(
    table: Any, bigrams: Any, node_bits: int, states: Any, words: Any, log_prob: Any, after: Any, matched: Any
) -> None:
    """Score words `[N]` after states `[N, n-1]`, into log_prob `[N]`, and find the states after them, `[N, n-1]`.

    matched: ones `[N]`, gets the length of the longest n-gram that ends in each word. bigrams: the hash table of
    2-grams with nodes of node_bits, or an empty one, for which the trie is searched.
    One order after the other over all states: their searches do not wait for each other.
    """
    (order, total, uni, base, starts, width, ngram_words, word_width) = table[:8]
    (unigrams, log_probs, log_backoff, bos, missing, closed) = table[8:]
    prob, prob_levels, prob_codes, code_width = parts_of(log_probs)
    backoff, backoff_levels, backoff_codes, code_width = parts_of(log_backoff)
    place = np.empty(len(words), np.int64)  # of each query
    query = np.empty((len(words), 3), np.int64)
    for i in range(len(words)):
        log_prob[i] = unigrams[words[i]]
        if order > 1:
            after[i, 0] = words[i]
    for k in range(2, order + 1):
        queries = 0
        for i in range(len(words)):
            context = states[i, k - 2]
            if k < order:
                after[i, k - 1] = SHORT if context == SHORT or words[i] == bos else UNSEEN
            if context == UNSEEN:
                log_prob[i] += missing
            elif context >= 0 and words[i] != bos and (matched[i] == k - 1 or not closed):
                place[queries] = i
                query[queries, 0] = context
                query[queries, 1] = words[i]
                queries += 1
            elif context >= 0:
                log_prob[i] += value_of(backoff, backoff_levels, backoff_codes, code_width, k - 1, context)
        if k == 2 and len(bigrams) > 0:
            find_bigrams(bigrams, word_width, node_bits, query[:queries])
        else:
            children(uni, base, starts, width, ngram_words, word_width, total, query[:queries])
        for j in range(queries):
            i, gram = place[j], query[j, 0]
            if gram >= 0:
                log_prob[i] = value_of(prob, prob_levels, prob_codes, code_width, k, gram)
                matched[i] = k
                if k < order:
                    after[i, k - 1] = gram
            else:
                context = states[i, k - 2]
                log_prob[i] += value_of(backoff, backoff_levels, backoff_codes, code_width, k - 1, context)
    if missing == 0.0:
        for i in range(len(words)):
            shorten(uni, base, starts, width, backoff, backoff_levels, backoff_codes, code_width, after[i])


@numba.njit(cache=True, nogil=True, inline="always")
def shorten(
    uni: Any, base: Any, starts: Any, width: Any, values: Any, levels: Any, codes: Any, code_width: Any, state: Any
) -> None:
    """Remove the longest suffixes from a state `[n-1]` that no n-gram goes on from and that cost nothing to leave.

    values, levels, codes, code_width: the log back-off weights, as quantised.value_of takes them.
    """
    for m in range(len(state) - 1, -1, -1):
        node = state[m]
        if node >= 0:
            followers = first_child(uni, base, starts, width, node + 1) - first_child(uni, base, starts, width, node)
            if followers != 0 or value_of(values, levels, codes, code_width, m + 1, node) != 0:
                break
        state[m] = SHORT
