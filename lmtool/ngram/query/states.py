"""An n-gram model word by word. A state is the nodes of the last 1, 2, ..., n-1 words, as short as the table allows.

KenLM's minimized state (Heafield 2011, section 4.1): a suffix of the words read counts only if a longer n-gram of the
table begins with it or its back-off weight is not one. So hypotheses that differ in nothing
else have equal states.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.data.vocabulary import SpecialTokens
from lmtool.ngram.query.find import Lookup
from lmtool.ngram.query.scoring import back_off
from lmtool.ngram.tables.packed import borrowed
from lmtool.ngram.tables.quantized import value_of
from lmtool.ngram.tables.trie_search import SHORT, UNSEEN, first_child
from lmtool.system.arrays import FloatArray, IntArray, whole_numbers
from lmtool.system.parallel import cut_evenly, run

STATES_PER_PIECE = 1 << 12  # that are advanced together: their nodes stay in the cache
MIN_STATES_PER_THREAD = 256


def first_state(width: int, bos: int, *, sentence_start: bool) -> IntArray:
    """Return the state `[width]` after `<s>`, or one without any words if nothing before is known."""
    state = np.full(width, SHORT, dtype=np.int64)
    if sentence_start and width:
        state[0] = bos
    return state


def advance(
    lookup: Lookup, special_tokens: SpecialTokens, states: IntArray, words: IntArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return log p of words `[N]` after states `[N, n-1]`, the states after them, and the matched lengths `[N]`.

    A matched length is that of the longest n-gram of the table that ends in the word. After `</s>` a sentence begins.
    Raises ValueError for other shapes and types, for words out of range, and for states that are not of this model.
    """
    width = lookup.table.order - 1
    words = whole_numbers("advance: words", words, (len(states),), below=special_tokens.bos + 1)
    states = np.ascontiguousarray(states, dtype=np.int64)
    if states.shape != (len(words), width):
        raise ValueError(f"advance: states must be [{len(words)}, {width}]; got {list(states.shape)}")
    if not _are_states(states, lookup.table.trie.nodes.first):
        raise ValueError("advance: these are not states of this model")
    log_prob, after, matched = np.empty(len(words)), np.empty_like(states), np.empty(len(words), dtype=np.int64)
    pieces = cut_evenly(len(words), max(-(-len(words) // STATES_PER_PIECE), 1))
    if len(pieces) == 1 and len(words) >= 2 * MIN_STATES_PER_THREAD:
        pieces = cut_evenly(len(words))
    eos = -1 if special_tokens.eos is None else special_tokens.eos
    table, arrays = lookup.for_states(len(words)), (states, words, log_prob, after, matched)
    run((advance_states, table, eos, *(array[a:b] for array in arrays)) for a, b in pieces)
    return log_prob, after, matched


@numba.njit(cache=True, nogil=True)
def _are_states(states: Any, first: Any) -> bool:
    """Return whether column m of states `[N, n-1]` has nodes of order m + 1, or marks. first: as in trie.Nodes."""
    for i in range(len(states)):
        for m in range(states.shape[1]):
            node = states[i, m]
            if node < UNSEEN or (node >= 0 and (node < first[m] or node >= first[m + 1])):
                return False
    return True


@numba.njit(cache=True, nogil=True)
def advance_states(table: Any, eos: Any, states: Any, words: Any, log_prob: Any, after: Any, matched: Any) -> None:
    """Score words `[N]` after states `[N, n-1]`, into log_prob `[N]`, and find the states after them, `[N, n-1]`.

    matched: gets the length of the longest n-gram that ends in each word. eos: -1 if there is none.
    The plain form is single_state, one word after one state (tests/ngram/test_query.py compares the two).
    """
    table = borrowed(table)
    order, hashed = table.order, table.ngrams.order == table.order
    lasting, beyond = np.zeros(len(words), np.int64), np.empty((len(words), 1), np.int64)
    for i in range(len(words)):
        log_prob[i] = table.unigrams[words[i]]
        matched[i] = 1
        if order > 1:
            after[i, 0] = words[i]
        if hashed:
            lasting[i] = table.ngrams.extends[words[i]]
    for k in range(2, order + 1):
        nodes = after[:, k - 1] if k < order else beyond[:, 0]
        back_off(table, k, states[:, k - 2], words, log_prob, matched, lasting, nodes)
    for i in range(len(words)):
        if words[i] == eos and order > 1:
            after[i, 0] = table.bos
            after[i, 1:] = SHORT
        elif table.missing == 0.0:
            shorten(table, after[i], lasting[i])


@numba.njit(cache=True, nogil=True, forceinline=True)
def shorten(table: Any, state: Any, lasting: Any) -> None:
    """Remove the longest suffixes from a state `[n-1]` with which no longer n-gram begins and whose weight is one.

    lasting: as score_word returns it.
    """
    for m in range(len(state), lasting, -1):
        node = state[m - 1]
        if node >= 0 and table.ngrams.order < table.order:
            followers = first_child(table.nodes, node + 1) - first_child(table.nodes, node)
            if followers != 0 or value_of(table.log_backoff, m, node) != 0:
                break
        state[m - 1] = SHORT
