"""A hash table of all n-grams of a back-off table, for decoders that score so many words that building it pays.

A search in the trie reads memory in several places for each order; the table mostly in one, where the probability of
the n-gram, its node and whether anything goes on from it lie together. It takes 24 bytes per n-gram.

An entry is two uint64: the key, node of the context << word_width | last word; then the bits of the float32 log p << 32
| extends << 31 | node. It lies in the first free slot from the key's hash on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.query.scoring import SHORT, UNSEEN
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import read, width_of
from lmtool.ngram.tables.quantized import QuantisedValues
from lmtool.system.memory import memory_available

EMPTY_SLOT = np.uint64(0xFFFFFFFFFFFFFFFF)
NODE_BITS = 31
AT_ONCE = 256  # words that are advanced together: what is noted of them stays in the first cache
SHARE = 4  # of the memory that is available: no table takes more than one part in so many


class NgramHash(NamedTuple):
    """entries: uint64 `[S, 2]`. extends: uint8 `[V]`, whether an n-gram goes on from a word, or its back-off weight is
    not one; of longer n-grams the entries say so. log_backoff: of the back-off table, float32.
    """

    entries: npt.NDArray[np.uint64]
    extends: npt.NDArray[np.uint8]
    log_backoff: npt.NDArray[np.float32]


def hash_ngrams(table: BackoffTable) -> NgramHash | None:
    """The hash table of a back-off table of order 2 or more that is not quantised, which are small on purpose.

    None for other tables, where an entry does not fit into its bits, and where memory is short.
    """
    log_prob, log_backoff, trie = table.log_prob, table.log_backoff, table.trie
    if isinstance(log_prob, QuantisedValues) or isinstance(log_backoff, QuantisedValues) or table.order < 2:
        return None
    ngrams, word_width = sum(table.sizes[1:]), trie.nodes.word_width
    slots = ngrams * 3 // 2 + 1
    available = memory_available()
    if available is not None and slots * 16 > available // SHARE:
        return None
    if width_of(sum(table.sizes)) > NODE_BITS or width_of(len(log_backoff)) + word_width > 63:
        return None
    entries = np.full((slots, 2), EMPTY_SLOT, dtype=np.uint64)
    bits, weights = np.ascontiguousarray(log_prob).view(np.uint32), np.ascontiguousarray(log_backoff)
    begins = _begins(table, 1)
    extends = (np.diff(begins) > 0) | (weights[: table.vocabulary_size] != 0)
    for k in range(2, table.order + 1):
        after = _begins(table, k) if k < table.order else np.zeros(0, dtype=np.int64)
        firsts = trie.first(k - 1), trie.first(k), trie.first(k) - table.vocabulary_size
        _fill(entries, begins, after, *firsts, trie.nodes.words, word_width, bits, weights)
        begins = after
    return NgramHash(entries, extends.astype(np.uint8), weights)


def _begins(table: BackoffTable, order: int) -> npt.NDArray[np.int64]:
    return table.trie.begins(order, 0, table.sizes[order - 1])


@numba.njit(cache=True, nogil=True, inline="always")
def slot_of(key: Any, slots: Any) -> Any:
    """The slot from which on a key is looked for: all bits of the key influence the high half of the product."""
    return np.int64(((key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32))


@numba.njit(cache=True, nogil=True)
def _fill(
    entries: Any,
    begins: Any,
    after: Any,
    first_context: int,
    first_node: int,
    first_word: int,
    words: Any,
    word_width: int,
    log_prob: Any,
    log_backoff: Any,
) -> None:
    """Enter the n-grams of one order. begins: of their contexts' children. after: of their own, empty in order n."""
    slots = len(entries)
    for context in range(len(begins) - 1):
        for i in range(begins[context], begins[context + 1]):
            key = (np.uint64(first_context + context) << np.uint64(word_width)) | np.uint64(
                read(words, word_width, first_word + i)
            )
            slot = slot_of(key, slots)
            while entries[slot, 0] != EMPTY_SLOT:
                slot = slot + 1 if slot + 1 < slots else np.int64(0)
            node = first_node + i
            extends = np.uint64(0)
            if len(after) > 0 and (after[i + 1] > after[i] or log_backoff[node] != 0):
                extends = np.uint64(1)
            entries[slot, 0] = key
            entries[slot, 1] = (
                (np.uint64(log_prob[node]) << np.uint64(32)) | (extends << np.uint64(NODE_BITS)) | np.uint64(node)
            )


@numba.njit(cache=True, nogil=True, inline="always")
def log_prob_of(value: Any) -> Any:
    """The log p in the second half of an entry, float64."""
    return np.float64(np.uint32(value >> np.uint64(32)).view(np.float32))


@numba.njit(cache=True, nogil=True, inline="always")
def node_of(value: Any) -> Any:
    """The node in the second half of an entry, int64."""
    return np.int64(value & np.uint64((1 << NODE_BITS) - 1))


@numba.njit(cache=True, nogil=True, inline="always")
def goes_on(value: Any) -> Any:
    """Whether the second half of an entry says that the n-gram is to stay in a state."""
    return (value >> np.uint64(NODE_BITS)) & np.uint64(1) != 0


@numba.njit(cache=True, nogil=True, inline="always")
def look_up(entries: Any, key: Any) -> Any:
    """The second half of a key's entry; EMPTY_SLOT, which is none, where there is no such n-gram."""
    slots = len(entries)
    slot = slot_of(key, slots)
    while entries[slot, 0] != key and entries[slot, 0] != EMPTY_SLOT:
        slot = slot + 1 if slot + 1 < slots else np.int64(0)
    return entries[slot, 1]


@numba.njit(cache=True, nogil=True)
def advance_hashed(
    entries: Any,
    extends: Any,
    log_backoff: Any,
    unigrams: Any,
    numbers: Any,
    states: Any,
    words: Any,
    log_prob: Any,
    after: Any,
    matched: Any,
) -> None:
    """The same as incremental.advance_states, to the bit; and after `</s>` a sentence begins.

    numbers: word_width, the ids of `<s>` and of `</s>` (-1 where there is none), whether the table is suffix-closed,
    int64. unigrams: with the weight `missing` behind them, float64 `[V + 1]`.
    Some words at a time, whose slots of an order are all read before the first is compared: none waits for another.
    """
    word_width, bos, eos, closed = np.uint64(numbers[0]), numbers[1], numbers[2], numbers[3] != 0
    missing = unigrams[-1]
    order, slots = states.shape[1] + 1, len(entries)
    place = np.empty(AT_ONCE, np.int64)  # of each query
    key, slot = np.empty(AT_ONCE, np.uint64), np.empty(AT_ONCE, np.int64)
    found, value = np.empty(AT_ONCE, np.uint64), np.empty(AT_ONCE, np.uint64)
    length = np.empty(AT_ONCE, np.int64)  # of the state after each word
    for first in range(0, len(words), AT_ONCE):
        last = min(first + AT_ONCE, len(words))
        for i in range(first, last):
            log_prob[i] = unigrams[words[i]]
            after[i, 0] = words[i]
            length[i - first] = extends[words[i]]
        for k in range(2, order + 1):
            queries = 0
            for i in range(first, last):
                context = states[i, k - 2]
                if k < order:
                    after[i, k - 1] = SHORT if context == SHORT or words[i] == bos else UNSEEN
                key[queries] = (np.uint64(context) << word_width) | np.uint64(words[i])
                slot[queries] = slot_of(key[queries], slots)
                place[queries] = i
                if context == UNSEEN:
                    log_prob[i] += missing
                elif context >= 0 and words[i] != bos and (matched[i] == k - 1 or not closed):
                    queries += 1
                elif context >= 0:
                    log_prob[i] += log_backoff[context]
            for j in range(queries):
                found[j] = entries[slot[j], 0]
                value[j] = entries[slot[j], 1]
            for j in range(queries):
                i = place[j]
                while found[j] != key[j] and found[j] != EMPTY_SLOT:
                    slot[j] = slot[j] + 1 if slot[j] + 1 < slots else 0
                    found[j] = entries[slot[j], 0]
                    value[j] = entries[slot[j], 1]
                if found[j] == key[j]:
                    log_prob[i] = log_prob_of(value[j])
                    matched[i] = k
                    if k < order:
                        after[i, k - 1] = node_of(value[j])
                        if goes_on(value[j]):
                            length[i - first] = k
                else:
                    log_prob[i] += log_backoff[states[i, k - 2]]
        for i in range(first, last):
            if words[i] == eos:
                after[i, 0] = bos
                length[i - first] = 1
            if missing == 0.0 or words[i] == eos:
                for k in range(length[i - first], order - 1):
                    after[i, k] = SHORT
