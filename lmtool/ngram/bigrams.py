"""Which 2-gram is it? A hash table, for text so long that making one pays.

Most words have hundreds of followers, and a search among them reads many places; a table reads one. An entry is the key
(first word << word_width | second word) << node_width | node, in the first free slot from the key's hash on.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.packed import read, width_of
from lmtool.ngram.trie import Trie

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
NONE = np.zeros(0, dtype=np.uint64)


def bigram_table(trie: Trie) -> npt.NDArray[np.uint64]:
    """The table of a trie's 2-grams, an array of a power of two; empty where an entry would not fit into 64 bits."""
    if trie.order < 2 or trie.sizes[1] == 0:
        return NONE
    if 2 * trie.nodes.word_width + node_width(trie.nodes.first) > 63:
        return NONE
    begins = trie.begins(1, 0, trie.vocabulary_size)
    if begins[0] != 0 or begins[-1] != trie.sizes[1] or (np.diff(begins) < 0).any():
        return NONE  # a damaged file
    table = np.full(1 << width_of(2 * trie.sizes[1]), EMPTY, dtype=np.uint64)
    _fill(table, begins, trie.nodes.words, trie.nodes.word_width, node_width(trie.nodes.first))
    return table


def node_width(first: npt.NDArray[np.int64]) -> int:
    """Bits of the nodes of order 2."""
    return width_of(int(first[2]))


@numba.njit(cache=True, nogil=True, inline="always")
def _slot(key: Any, table: Any) -> Any:
    # The high bits of a product are those that all bits of the key have a say in.
    return (key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & np.uint64(len(table) - 1)


@numba.njit(cache=True, nogil=True)
def _fill(table: Any, begins: Any, words: Any, word_width: int, node_bits: int) -> None:
    size = len(begins) - 1
    mask = np.uint64(len(table) - 1)
    for first in range(size):
        for i in range(begins[first], begins[first + 1]):
            key = (np.uint64(first) << np.uint64(word_width)) | np.uint64(read(words, word_width, i))
            slot = _slot(key, table)
            while table[slot] != EMPTY:
                slot = (slot + np.uint64(1)) & mask
            table[slot] = (key << np.uint64(node_bits)) | np.uint64(size + i)


@numba.njit(cache=True, nogil=True)
def find_bigrams(table: Any, word_width: int, node_bits: int, asked: Any) -> None:
    """As `trie.children` for order 1: asked `[B, 3]` holds first and second words, which become nodes or -1."""
    mask = np.uint64(len(table) - 1)
    nodes = (np.uint64(1) << np.uint64(node_bits)) - np.uint64(1)
    for i in range(len(asked)):
        key = (np.uint64(asked[i, 0]) << np.uint64(word_width)) | np.uint64(asked[i, 1])
        slot = _slot(key, table)
        found = np.int64(-1)
        while True:
            entry = table[slot]
            if entry >> np.uint64(node_bits) == key:
                found = np.int64(entry & nodes)
                break
            if entry == EMPTY:
                break
            slot = (slot + np.uint64(1)) & mask
        asked[i, 0] = found
