"""Searches in a trie's arrays: compiled, and without branches that the processor would mispredict.

The kernels take the arrays of `trie.Nodes` one by one: taking them out of a tuple would count references, which costs
more than the search and makes threads wait for each other.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.ngram.tables.block_starts import look_up_blocks, span_of, start_of
from lmtool.ngram.tables.packed import read, read_short


@numba.njit(cache=True, nogil=True, inline="always")
def first_child(unigram_starts: Any, base: Any, starts: Any, start_width: Any, node: int) -> Any:
    """Where the children of a node begin; those of the node before it end there."""
    inner = node - len(unigram_starts)
    if inner < 0:
        return unigram_starts[node]
    return start_of(base, starts, start_width, inner)


@numba.njit(cache=True, nogil=True)
def child(
    unigram_starts: Any,
    base: Any,
    starts: Any,
    start_width: Any,
    words: Any,
    word_width: int,
    total: int,
    node: int,
    word: int,
) -> Any:
    """The child of an inner node that ends in `word`, -1 where there is none. total: the number of nodes."""
    size = len(unigram_starts)
    low, end = span_of(unigram_starts, base, starts, start_width, node)
    length = end - low
    if low < size or length < 0 or low + length > total:
        return np.int64(-1)  # only in a damaged file
    low -= size
    # The last of the children whose word is not above the wanted one.
    while length > 1:
        half = length >> 1
        below = (read(words, word_width, low + half) - word - 1) >> 63  # all ones or all zeros
        low += half & below
        length -= half
    if length == 1 and read(words, word_width, low) == word:
        return low + size
    return np.int64(-1)


@numba.njit(cache=True, nogil=True)
def children(
    unigram_starts: Any,
    base: Any,
    starts: Any,
    start_width: Any,
    words: Any,
    word_width: int,
    total: int,
    queries: Any,
) -> None:
    """`child` of B queries: int64 `[B, 3]` with nodes and words in its first two columns; the first gets the children.

    All searches take each step together, until one child is left. No step waits for another search, so that the
    processor works on many at a time: several times as fast as one after the other. The third column is scratch.
    """
    size = len(unigram_starts)
    halves = words.view(np.uint32)
    active = np.empty(len(queries), np.int32)  # the queries with more than one child left
    count = 0
    look_up_blocks(base, start_width, size, queries)
    for i in range(len(queries)):
        begin, end = span_of(unigram_starts, base, starts, start_width, queries[i, 0])
        length = end - begin
        if begin < size or length < 0 or begin + length > total:  # only in a damaged file
            begin, length = np.int64(size), np.int64(0)
        queries[i, 0] = begin - size
        queries[i, 2] = length
        active[count] = i
        count += length > 1
    while count > 0:
        left = 0
        for a in range(count):
            i = active[a]
            half = queries[i, 2] >> 1
            middle = read_short(halves, word_width, queries[i, 0] + half)
            below = (middle - queries[i, 1] - 1) >> 63  # all ones or all zeros
            queries[i, 0] += half & below
            queries[i, 2] -= half
            active[left] = i
            left += queries[i, 2] > 1
        count = left
    for i in range(len(queries)):
        low = queries[i, 0]
        is_there = queries[i, 2] == 1 and read(words, word_width, low) == queries[i, 1]
        queries[i, 0] = low + size if is_there else -1


@numba.njit(cache=True, nogil=True)
def find_ngrams(
    unigram_starts: Any,
    base: Any,
    starts: Any,
    start_width: Any,
    words: Any,
    word_width: int,
    total: int,
    grams: Any,
    out: Any,
) -> None:
    """The nodes of n-grams `[M, k]` of words, -1 where there are none, into out `[M]`."""
    queries = np.empty((4096, 3), np.int64)
    for first in range(0, len(grams), len(queries)):
        count = min(len(queries), len(grams) - first)
        for i in range(count):
            out[first + i] = grams[first + i, 0]
        for j in range(1, grams.shape[1]):
            for i in range(count):
                queries[i, 0] = max(out[first + i], 0)
                queries[i, 1] = grams[first + i, j]
            children(unigram_starts, base, starts, start_width, words, word_width, total, queries[:count])
            for i in range(count):
                out[first + i] = queries[i, 0] if out[first + i] >= 0 else -1


@numba.njit(cache=True, nogil=True)
def first_children(unigram_starts: Any, base: Any, starts: Any, start_width: Any, first: int, out: Any) -> None:
    """Where the children of nodes `first`, `first` + 1, ... begin, into out `[M]`."""
    for i in range(len(out)):
        out[i] = first_child(unigram_starts, base, starts, start_width, first + i)


@numba.njit(cache=True, nogil=True)
def find_parents(
    unigram_starts: Any, base: Any, starts: Any, start_width: Any, first: int, size: int, nodes: Any, out: Any
) -> None:
    """The parents of nodes `[M]` among the `size` nodes from `first` on, counted from there, into out `[M]`."""
    for i in range(len(nodes)):
        # The last node whose children begin at or before this one.
        low: Any = np.int64(0)
        high: Any = np.int64(size)
        while high - low > 1:
            middle = (low + high) >> 1
            if first_child(unigram_starts, base, starts, start_width, first + middle) <= nodes[i]:
                low = middle
            else:
                high = middle
        out[i] = low
