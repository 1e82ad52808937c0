"""A hash table from 2-grams to their nodes, for texts so long that building it pays.

Most words have hundreds of followers, and a search among them reads memory in many places; the table in one. An entry
is key << node_width | node with the key first word << word_width | second word, in the first free slot from the key's
hash on.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.tables.packed import read, width_of
from lmtool.ngram.tables.trie import Trie

EMPTY_SLOT = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_TABLE = np.zeros(0, dtype=np.uint64)


def bigram_table(trie: Trie) -> npt.NDArray[np.uint64]:
    """The table of a trie's 2-grams, uint64 of a power of two; empty where an entry does not fit into 64 bits."""
    if trie.order < 2 or trie.sizes[1] == 0:
        return NO_TABLE
    if 2 * trie.nodes.word_width + node_width(trie.nodes.first) > 63:
        return NO_TABLE
    begins = trie.begins(1, 0, trie.vocabulary_size)
    table = np.full(1 << width_of(2 * trie.sizes[1]), EMPTY_SLOT, dtype=np.uint64)
    _fill(table, begins, trie.nodes.words, trie.nodes.word_width, node_width(trie.nodes.first))
    return table


def node_width(first: npt.NDArray[np.int64]) -> int:
    """The number of bits of nodes of order 2; first: as in trie.Nodes."""
    return width_of(int(first[2]))


@numba.njit(cache=True, nogil=True, inline="always")
def _slot(key: Any, table: Any) -> Any:
    # All bits of the key influence the high bits of the product.
    return (key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & np.uint64(len(table) - 1)


@numba.njit(cache=True, nogil=True)
def _fill(table: Any, begins: Any, words: Any, word_width: int, node_bits: int) -> None:
    size = len(begins) - 1
    mask = np.uint64(len(table) - 1)
    for first in range(size):
        for i in range(begins[first], begins[first + 1]):
            key = (np.uint64(first) << np.uint64(word_width)) | np.uint64(read(words, word_width, i))
            slot = _slot(key, table)
            while table[slot] != EMPTY_SLOT:
                slot = (slot + np.uint64(1)) & mask
            table[slot] = (key << np.uint64(node_bits)) | np.uint64(size + i)


@numba.njit(cache=True, nogil=True)
def find_bigrams(table: Any, word_width: int, node_bits: int, queries: Any) -> None:
    """The nodes of 2-grams, -1 where there are none: queries `[B, 3]` holds first and second words in its first two
    columns; the first gets the nodes.
    """
    mask = np.uint64(len(table) - 1)
    mask_of_node = (np.uint64(1) << np.uint64(node_bits)) - np.uint64(1)
    for i in range(len(queries)):
        key = (np.uint64(queries[i, 0]) << np.uint64(word_width)) | np.uint64(queries[i, 1])
        slot = _slot(key, table)
        node = np.int64(-1)
        while True:
            entry = table[slot]
            if entry >> np.uint64(node_bits) == key:
                node = np.int64(entry & mask_of_node)
                break
            if entry == EMPTY_SLOT:
                break
            slot = (slot + np.uint64(1)) & mask
        queries[i, 0] = node
