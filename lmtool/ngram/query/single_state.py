"""One word after one state, in little more than the time of a call.

Handing a compiled function an array takes longer than the search itself, and it needs more than ten of them. Therefore
all arguments are numbers: the addresses of the table's arrays lie in one array, and its address is handed over. Nothing
else in lmtool reads memory by address; a SingleStates keeps its arrays alive, and takes states that it has made alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from lmtool.language_model import LN10
from lmtool.ngram.query.ngram_hash import EMPTY_SLOT, NgramHash, goes_on, log_prob_of, look_up, node_of
from lmtool.ngram.query.scoring import SHORT, UNSEEN, TableArrays
from lmtool.ngram.query.states import shorten
from lmtool.ngram.tables.trie_search import child

CompiledScore = Callable[[int, int, int, int], float]
ARRAYS = ("unigram_starts", "base", "starts", "words", "unigrams", "log_prob", "log_backoff")
NUMBERS = ("order", "total", "start_width", "word_width", "bos", "suffix_closed")
WORDS_SCORED, HASHED = 2 * len(ARRAYS) + len(NUMBERS) + 1, 2 * len(ARRAYS) + len(NUMBERS) + 2
FIELDS = HASHED + 3  # addresses and lengths, numbers, the bits of `missing`, words scored, and of the hash table


class SingleStates:
    """A back-off table of order n, not quantised, that scores one word after one state.

    A state is n numbers, int64, at an address: as in NgramScorer the nodes of the last 1 to n-1 words, and then the
    length of the longest n-gram of the table that ends in the last word.
    """

    def __init__(self, arrays: TableArrays) -> None:
        self._arrays = [getattr(arrays, name) for name in ARRAYS]
        numbers = [int(getattr(arrays, name)) for name in NUMBERS]
        missing = np.array([arrays.missing], dtype=np.float64).view(np.int64)
        places = [number for array in self._arrays for number in (array.ctypes.data, len(array))]
        self._table = np.array([*places, *numbers, *missing, 0, 0, 0, 0], dtype=np.int64)
        self.order = arrays.order
        self.table: int = self._table.ctypes.data
        self.log10_prob: CompiledScore = called_with_numbers(_log10_prob)

    def words_scored(self) -> int:
        """The number of words that were scored since this was asked last."""
        words = int(self._table[WORDS_SCORED])
        self._table[WORDS_SCORED] = 0
        return words

    def use(self, ngrams: NgramHash) -> None:
        """Look n-grams up in a hash table of the same back-off table from now on."""
        if not self._table[HASHED]:
            self._arrays += [ngrams.entries, ngrams.extends]
            self._table[HASHED + 1 :] = len(ngrams.entries), ngrams.extends.ctypes.data
            self._table[HASHED] = ngrams.entries.ctypes.data

    def new_state(self) -> ctypes.Array[ctypes.c_int64]:
        """A state without any words."""
        return (ctypes.c_int64 * self.order)(*[int(SHORT)] * (self.order - 1), 0)


def called_with_numbers(kernel: Any) -> CompiledScore:
    """A compiled kernel of four int64, without the look at the types of its arguments that a call begins with.

    `compile` of Numba's dispatcher returns it.
    """
    function: CompiledScore = kernel.compile(types.float64(*[types.int64] * 4))
    return function


def _pointer_of(_typing: Any, address: Any) -> Any:
    """The pointer of an address, int64."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_pointer_of)


@numba.njit(cache=True)  # to let other threads run would take as long as the search
def _log10_prob(table: int, state: int, word: int, after: int) -> Any:
    """log10 p of a word after a state, and the state after it; the same as incremental.advance_states.

    table, state, after: addresses of FIELDS, n and n int64.
    """
    fields = carray(_pointer(table), (FIELDS,), dtype=np.int64)
    uni = carray(_pointer(fields[0]), (fields[1],), dtype=np.int64)
    base = carray(_pointer(fields[2]), (fields[3],), dtype=np.int64)
    starts = carray(_pointer(fields[4]), (fields[5],), dtype=np.uint64)
    words = carray(_pointer(fields[6]), (fields[7],), dtype=np.uint64)
    unigrams = carray(_pointer(fields[8]), (fields[9],), dtype=np.float64)
    log_probs = carray(_pointer(fields[10]), (fields[11],), dtype=np.float32)
    log_backoff = carray(_pointer(fields[12]), (fields[13],), dtype=np.float32)
    order, total, width, word_width, bos, closed = fields[14:20]
    missing = fields[20:21].view(np.float64)[0]
    nodes = carray(_pointer(state), (order,), dtype=np.int64)
    after_nodes = carray(_pointer(after), (order,), dtype=np.int64)

    fields[WORDS_SCORED] += 1
    if fields[HASHED] != 0:
        entries = carray(_pointer(fields[HASHED]), (fields[HASHED + 1], 2), dtype=np.uint64)
        extends = carray(_pointer(fields[HASHED + 2]), (len(unigrams),), dtype=np.uint8)
        return _hashed(entries, extends, unigrams, log_backoff, fields, nodes, word, after_nodes) / LN10
    score = unigrams[word]
    longest = 1
    before: Any = nodes[0] if order > 1 else SHORT  # read before it is written: after may be the state itself
    if order > 1:
        after_nodes[0] = word
    for k in range(2, order + 1):
        context = before
        before = nodes[k - 1]
        gram: Any = SHORT if context == SHORT or word == bos else UNSEEN
        if context == UNSEEN:
            score += missing
        elif context >= 0:
            if word != bos and (longest == k - 1 or not closed):
                node = child(uni, base, starts, width, words, word_width, total, context, word)
                gram = node if node >= 0 else gram
            if gram >= 0:
                score = np.float64(log_probs[gram])
                longest = k
            else:
                score += log_backoff[context]
        if k < order:
            after_nodes[k - 1] = gram
    after_nodes[order - 1] = longest
    if missing == 0.0:
        shorten(uni, base, starts, width, log_backoff, None, None, 0, after_nodes[: order - 1])
    return score / LN10


@numba.njit(cache=True)  # inline="always" of Numba 0.68 gave other values
def _hashed(
    entries: Any, extends: Any, unigrams: Any, log_backoff: Any, fields: Any, nodes: Any, word: Any, after: Any
) -> Any:
    """log p of a word and the state after it, into after `[n]`, by the hash table; the same as _log10_prob's, to the
    bit.
    """
    order, word_width, bos, closed = fields[14], np.uint64(fields[17]), fields[18], fields[19]
    missing = fields[20:21].view(np.float64)[0]
    score = unigrams[word]
    longest = 1
    length: Any = np.int64(extends[word])  # of the state after the word
    before: Any = nodes[0] if order > 1 else SHORT
    if order > 1:
        after[0] = word
    for k in range(2, order + 1):
        context = before
        before = nodes[k - 1]
        gram: Any = SHORT if context == SHORT or word == bos else UNSEEN
        if context == UNSEEN:
            score += missing
        elif context >= 0:
            value: Any = EMPTY_SLOT
            if word != bos and (longest == k - 1 or not closed):
                value = look_up(entries, (np.uint64(context) << word_width) | np.uint64(word))
            if value != EMPTY_SLOT:
                score = log_prob_of(value)
                longest = k
                gram = node_of(value)
                if goes_on(value):
                    length = k
            else:
                score += log_backoff[context]
        if k < order:
            after[k - 1] = gram
    after[order - 1] = longest
    if missing == 0.0:
        after[length : order - 1] = SHORT
    return score
