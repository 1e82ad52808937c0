"""Look up n-grams: `find`, given a context's node and a word, in the trie or in a hash table.

A search in the trie reads several places of memory for each order; a search in a hash table mostly reads one, a bucket
of four n-grams in one cache line, with the probability of each, its node and whether longer n-grams begin with it. A
Lookup builds the table once enough words were looked up to make up for the time: of 2-grams, whose contexts have the
most followers, for running text, and of all n-grams for decoders and for long texts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import prefetch, read, width_of
from lmtool.ngram.tables.quantized import Codes, QuantizedValues, value_of
from lmtool.ngram.tables.trie import Nodes
from lmtool.ngram.tables.trie_search import child
from lmtool.system.arrays import Array
from lmtool.system.process import memory_available

NODE_BITS = 31
KEY_BITS = 62  # with all 64, _value_of could not compare keys by the sign of a difference
SLOTS_PER_BUCKET, CELLS_PER_LINE = 4, 8
NGRAMS_AHEAD = 16  # distance at which n-grams are prefetched while a hash table is filled
SLOTS_PER_NGRAM = 2
QUERIES_PER_BLOCK = 256  # searched together in a hash table: their queries stay in the L1 cache
MAX_MEMORY_FRACTION = 4  # a hash table takes at most one fourth of the available memory
NGRAMS_PER_WORD = 4  # entered into a hash table in the time of looking up one word


class Hash(NamedTuple):
    """A hash table of the n-grams of orders 2 to `order`; of none if order is 1.

    entries: uint64 `[B, 8]`, buckets of four keys and then their four values, 0 where a slot is free. Key: (node of the
    context << word_width | last word) + 1. Value: the bits of the float32 log p << 32 | extends << 31 | node. An entry
    lies in the first free slot from the bucket of its key's hash on. extends: whether a longer n-gram begins with this
    one, or its back-off weight is not one; for words uint8 `[V]`.
    """

    entries: Array
    extends: Array
    order: int


class Table(NamedTuple):
    """A back-off table in the form for compiled loops; see BackoffTable.

    unigrams: float64 `[V]`, log p(w), with the unseen types' at `<s>`. log_prob, log_backoff: float32 arrays or Codes,
    which value_of reads. ngrams: the hash table that `find` searches first.
    """

    order: int
    bos: int
    missing: float
    suffix_closed: bool
    unigrams: Array
    log_prob: Array | Codes
    log_backoff: Array | Codes
    nodes: Nodes
    ngrams: Hash


def compiled_table(table: BackoffTable) -> Table:
    """Return a table in the form for compiled loops, without a hash table."""
    unigrams = table.log_prob[: table.vocabulary_size].astype(np.float64)
    unigrams[table.bos] = table.unseen
    log_prob, log_backoff = table.log_prob, table.log_backoff
    return Table(
        order=table.order,
        bos=table.bos,
        missing=table.missing,
        suffix_closed=table.suffix_closed,
        unigrams=unigrams,
        log_prob=log_prob.arrays if isinstance(log_prob, QuantizedValues) else log_prob,
        log_backoff=log_backoff.arrays if isinstance(log_backoff, QuantizedValues) else log_backoff,
        nodes=table.trie.nodes,
        ngrams=Hash(np.zeros((0, CELLS_PER_LINE), dtype=np.uint64), np.zeros(table.vocabulary_size, dtype=np.uint8), 1),
    )


class Lookup:
    """A back-off table, with the hash tables that save time."""

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self.compiled = compiled_table(table)
        self._tokens = self._words = 0
        self._tried: set[int] = set()  # orders up to which a hash table was built, or was not for lack of memory
        self._paying_tokens = sum(table.sizes[1:2]) // NGRAMS_PER_WORD
        self._paying_words = sum(table.sizes) // NGRAMS_PER_WORD

    def for_text(self, tokens: int) -> Table:
        """Return the table for scoring this number of additional tokens of text."""
        self._tokens += tokens
        if self._tokens > sum(self.table.sizes) and self.table.quantized_bits is None:
            self._build(self.table.order)  # running text is scored 1.5 times as fast as with 2-grams (EPYC, 2026-11-26)
        if self._tokens > self._paying_tokens and self.table.order > 1:
            self._build(2)
        return self.compiled

    def for_states(self, words: int) -> Table:
        """Return the table for advancing states by this number of additional words."""
        before, self._words = self._words, self._words + words
        if before <= self._paying_words < self._words and self.table.quantized_bits is None:
            self._build(self.table.order)  # quantized tables are small on purpose
        return self.compiled if self.compiled.ngrams.order == self.table.order else self.for_text(words)

    def _build(self, order: int) -> None:
        if self.compiled.ngrams.order < order and order not in self._tried:
            self._tried.add(order)
            ngrams = hash_ngrams(self.table, order)
            if ngrams is not None and self.compiled.ngrams.order < order:  # another thread may have built a larger one
                self.compiled = self.compiled._replace(ngrams=ngrams)


def hash_ngrams(table: BackoffTable, order: int) -> Hash | None:
    """Return the hash table of the n-grams of orders 2 to `order`; None if its bits or memory do not suffice."""
    trie, word_width = table.trie, table.trie.nodes.word_width
    slots = sum(table.sizes[1:order]) * SLOTS_PER_NGRAM + 1
    available = memory_available()
    if available is not None and slots * 16 > available // MAX_MEMORY_FRACTION:
        return None
    if width_of(trie.first(order + 1)) > NODE_BITS or width_of(trie.first(order)) + word_width > KEY_BITS:
        return None
    cells = np.zeros((slots // SLOTS_PER_BUCKET + 2) * CELLS_PER_LINE, dtype=np.uint64)
    entries = cells[-cells.ctypes.data % 64 // 8 :][: len(cells) - CELLS_PER_LINE].reshape(-1, CELLS_PER_LINE)
    begins, extends = trie.begins(1, 0, table.vocabulary_size), np.zeros(0, dtype=np.bool_)
    extensible = (np.diff(begins) > 0) | (table.log_backoff[: table.vocabulary_size] != 0)
    for k in range(2, order + 1):
        first, last = trie.first(k), trie.first(k + 1)
        extends, after = np.zeros(last - first, dtype=np.bool_), begins
        if k < table.order:
            after = trie.begins(k, 0, last - first)
            extends = (np.diff(after) > 0) | (table.log_backoff[first:last] != 0)
        bits = np.ascontiguousarray(table.log_prob[first:last]).view(np.uint32)
        words = trie.nodes.words, word_width, first - table.vocabulary_size
        _fill(entries, begins, trie.first(k - 1), first, words, bits, extends)
        begins = after
    return Hash(entries, extensible.astype(np.uint8), order)


@numba.njit(cache=True, nogil=True)
def _fill(
    entries: Any, begins: Any, first_context: int, first_node: int, last_words: Any, bits: Any, extends: Any
) -> None:
    """Enter the n-grams of one order. begins: the starts of their contexts' children. last_words: the trie's last
    words, packed, with their width and the number of words before them. bits: the bits of their log p, `[M]`.
    """
    words, word_width, words_before = last_words
    keys = np.empty(len(bits), np.uint64)
    for context in range(len(begins) - 1):
        for i in range(begins[context], begins[context + 1]):
            keys[i] = _key(word_width, first_context + context, read(words, word_width, words_before + i))
    for i in range(len(keys)):
        prefetch(entries, _first_cell(entries, keys[min(i + NGRAMS_AHEAD, len(keys) - 1)]))
        bucket, slot = _first_bucket(entries, keys[i]), 0
        while entries[bucket, slot] != 0:
            slot += 1
            if slot == SLOTS_PER_BUCKET:
                bucket, slot = _next_bucket(entries, bucket), 0
        stays = np.uint64(extends[i]) << np.uint64(NODE_BITS)
        entries[bucket, slot] = keys[i]
        value = (np.uint64(bits[i]) << np.uint64(32)) | stays | np.uint64(first_node + i)
        entries[bucket, slot + SLOTS_PER_BUCKET] = value


@numba.njit(cache=True, nogil=True, forceinline=True)
def _key(word_width: Any, context: Any, word: Any) -> Any:
    return ((np.uint64(context) << np.uint64(word_width)) | np.uint64(word)) + np.uint64(1)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _first_bucket(entries: Any, key: Any) -> Any:
    """Return where a key's search begins, of all its bits: they influence the high half of the product."""
    half = key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    return (half * np.uint64(len(entries))) >> np.uint64(32)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _first_cell(entries: Any, key: Any) -> Any:
    return np.uint64(CELLS_PER_LINE) * _first_bucket(entries, key)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _next_bucket(entries: Any, bucket: Any) -> Any:
    return bucket + np.uint64(1) if bucket + np.uint64(1) < np.uint64(len(entries)) else np.uint64(0)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _value_of(entries: Any, key: Any) -> Any:
    """Return the value of a key, or 0 if the table does not have it.

    A search slot by slot would mispredict its end: here all keys of a bucket are compared by arithmetic, because LLVM
    would turn conditions into branches.
    """
    bucket = _first_bucket(entries, key)
    while True:
        value = np.uint64(0)
        for i in range(SLOTS_PER_BUCKET):
            differs = (entries[bucket, np.uint64(i)] ^ key) - np.uint64(1)  # negative if the keys are equal
            value |= entries[bucket, np.uint64(i + SLOTS_PER_BUCKET)] & np.uint64(np.int64(differs) >> np.int64(63))
        if value != 0 or entries[bucket, np.uint64(SLOTS_PER_BUCKET - 1)] == 0:
            return value
        bucket = _next_bucket(entries, bucket)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _parts(value: Any) -> Any:
    """Return the node, log p (float32) and `extends` from the second half of an entry."""
    node = np.int64(value & np.uint64((1 << NODE_BITS) - 1))
    log_prob = np.uint32(value >> np.uint64(32)).view(np.float32)
    return node, log_prob, (value >> np.uint64(NODE_BITS)) & np.uint64(1) != 0


@numba.njit(cache=True, nogil=True, forceinline=True)
def find(table: Any, order: Any, context: Any, word: Any) -> Any:
    """Return the node of an n-gram, its log p and whether it extends (see Hash), or -1, 0, False if it is not found.

    order: the order of the n-gram. context: the node of all its words except the last. For an n-gram found in the trie,
    the third value is False: scoring.shorten looks into the trie itself.
    """
    if order > table.ngrams.order:
        node = child(table.nodes, context, word)
        return node, (value_of(table.log_prob, order, node) if node >= 0 else np.float32(0)), False
    value = _value_of(table.ngrams.entries, _key(table.nodes.word_width, context, word))
    return _parts(value) if value != 0 else (np.int64(-1), np.float32(0), False)


@numba.njit(cache=True, nogil=True, forceinline=True)
def prefetch_ngram(table: Any, context: Any, word: Any) -> None:
    """Prefetch the first bucket that `find` reads for an n-gram, and the back-off weight of its context."""
    prefetch(table.log_backoff, context)
    entries = table.ngrams.entries
    prefetch(entries, _first_cell(entries, _key(table.nodes.word_width, context, word)))


@numba.njit(cache=True, nogil=True, forceinline=True)
def find_hashed(table: Any, queries: Any, log_prob: Any) -> None:
    """Find B n-grams in the hash table, given contexts and words in the first columns of queries int64 `[B, 3]`.

    The first column receives their nodes, or -1, the last whether they extend, and log_prob `[B]` log p. The plain form
    is `find`; in this loop no search waits for another.
    """
    entries = table.ngrams.entries
    for j in range(len(queries)):
        value = _value_of(entries, _key(table.nodes.word_width, queries[j, 0], queries[j, 1]))
        node, log_prob[j], extends = _parts(value)
        queries[j, 0] = node if value != 0 else np.int64(-1)
        queries[j, 2] = extends
