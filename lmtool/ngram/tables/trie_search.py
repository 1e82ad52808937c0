"""Searches in a trie's arrays: compiled, and without branches that the processor would mispredict.

The plain form is np.searchsorted among the words of a node's children; tests/ngram/test_query.py compares the two.

Where the children of nodes start takes as few bits as each block of 64 nodes needs. Most n-grams have one child. So the
start of node j of a block is about the block's base + j, and only the difference is packed, in the width of the block's
largest difference: 5 bits per node, bases included, for the n-grams of 20 million words; one width for all blocks takes
18.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.tables.packed import borrow, read, read_bits, read_short
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import Array

BLOCK = 6  # log2 of the number of nodes of a block
NODES = 1 << BLOCK
SPARE_CELLS = 2  # behind the last number, into which `read_bits` may look
WIDTH_BITS, MAX_WIDTH = 5, 31  # two numbers fit into one read
# Instead of the node of a context's last m words, if the trie has none:
SHORT = np.int64(-1)  # the sentence has no context of this length yet
UNSEEN = np.int64(-2)  # the trie does not have it
QUERIES = 4096  # n-grams searched together: their queries stay in the cache


@numba.njit(cache=True, nogil=True, forceinline=True)
def start_of(nodes: Any, inner: Any) -> Any:
    """Return the start of the children of a node of order 2 or more, counted from the first of order 2."""
    row, place, at, width = _block_of(nodes.blocks, inner)
    return nodes.blocks[row] + place + read_bits(nodes.starts, at, width)


@numba.njit(cache=True, nogil=True, forceinline=True)
def span_of(nodes: Any, node: Any) -> Any:
    """Return the start and end of the children of a node of any order: the starts of the node and of the next node."""
    unigram_starts, inner = nodes.unigram_starts, node - len(nodes.unigram_starts)
    if inner < -1:
        return unigram_starts[node], unigram_starts[node + 1]
    if inner < 0:
        return unigram_starts[node], start_of(nodes, 0)
    # Both numbers are adjacent and are read together.
    row, place, at, width = _block_of(nodes.blocks, inner)
    both = read_bits(nodes.starts, at, 2 * width)
    first = nodes.blocks[row] + place
    return first + (both & ((1 << width) - 1)), first + 1 + (both >> width)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _block_of(blocks: Any, inner: int) -> Any:
    """Return the row of a node's block, its place in the block, and the first bit and the width of its number."""
    row = np.uint64(min(inner >> BLOCK << 1, len(blocks) - 2))  # beyond only in a damaged file
    place = inner & (NODES - 1)
    width = blocks[row + np.uint64(1)] & MAX_WIDTH
    return row, place, np.uint64((blocks[row + np.uint64(1)] >> WIDTH_BITS) + place * width), width


def pack_starts(starts: Array, storage: Storage) -> tuple[Array, Array]:
    """Return the blocks int64 `[2 B]` and the packed numbers, uint64, of ascending starts `[N]`.

    blocks: for each of B blocks the minimum of start - place, then `bit << 5 | width` of its numbers; each block ends
    with the first number of the next.
    """
    blocks, bit = storage.empty(cells_of_blocks(len(starts)), np.int64), 0
    for first, last in storage.pieces(len(starts)):  # whole blocks
        values, rows = starts[first : last + 1].astype(np.int64), blocks[first >> BLOCK << 1 :]
        bit = int(_choose_widths(values, last - first, rows, bit))
        if bit < 0:
            raise UserError(
                f"over 2 billion n-grams begin with {NODES} contexts: use less text, or a lower model.order"
            )
    packed = storage.zeros((bit + (NODES + 1) * MAX_WIDTH >> 6) + SPARE_CELLS, np.uint64)  # room for a whole block
    for first, last in storage.pieces(len(starts)):
        values, rows = starts[first : last + 1].astype(np.int64), blocks[first >> BLOCK << 1 :]
        _pack_blocks(values, last - first, rows, packed)
    return blocks, packed


def cells_of_blocks(count: int) -> int:
    """Return the number of cells of the blocks of `count` starts."""
    return (count + NODES - 1) >> BLOCK << 1


def require_within(blocks: Array, packed: Array, count: int) -> None:
    """Raise ValueError if the numbers of a block would lie outside the array, as in a damaged file."""
    if len(blocks) < cells_of_blocks(count):
        raise ValueError("the blocks of starts are wrong")
    bits, widths = blocks[1::2] >> WIDTH_BITS, blocks[1::2] & MAX_WIDTH
    if (bits < 0).any() or ((bits + (NODES + 1) * widths >> 6) + SPARE_CELLS > len(packed)).any():
        raise ValueError("starts is too short")


@numba.njit(cache=True, nogil=True)
def _choose_widths(values: Any, count: int, blocks: Any, bit: int) -> Any:
    """Fill in the rows of blocks of `count` starts, whose numbers lie from `bit` on. Returns the bit after them.

    values: the starts and, if it exists, the next start. Returns -1 if a width would be too large.
    """
    for first in range(0, count, NODES):
        numbers = min(NODES + 1, len(values) - first)
        least = values[first]
        most = values[first]
        for j in range(numbers):
            least = min(least, values[first + j] - j)
            most = max(most, values[first + j] - j)
        width = 0
        while (most - least) >> width > 0:
            width += 1
        if width > MAX_WIDTH:
            return -1
        row = first >> BLOCK << 1
        blocks[row] = least
        blocks[row + 1] = bit << WIDTH_BITS | width
        bit += numbers * width
    return bit


@numba.njit(cache=True, nogil=True)
def _pack_blocks(values: Any, count: int, blocks: Any, packed: Any) -> None:
    for first in range(0, count, NODES):
        row = first >> BLOCK << 1
        least, width, at = blocks[row], blocks[row + 1] & MAX_WIDTH, blocks[row + 1] >> WIDTH_BITS
        for j in range(min(NODES + 1, len(values) - first)):
            value = np.uint64(values[first + j] - j - least)
            shift = np.uint64(at & 63)
            packed[at >> 6] |= value << shift
            if (at & 63) + width > 64:
                packed[(at >> 6) + 1] |= value >> (np.uint64(64) - shift)
            at += width


@numba.njit(cache=True, nogil=True, forceinline=True)
def first_child(nodes: Any, node: int) -> Any:
    """Return the start of the children of a node, which is the end of the previous node's children."""
    inner = node - len(nodes.unigram_starts)
    if inner < 0:
        return nodes.unigram_starts[node]
    return start_of(nodes, inner)


@numba.njit(cache=True, nogil=True, forceinline=True)
def children_of(nodes: Any, node: int) -> Any:
    """Return the first child of an inner node and the node after its last child. They are equal if there is none."""
    begin, end = span_of(nodes, node)
    if begin < len(nodes.unigram_starts) or begin > end or end > nodes.first[len(nodes.first) - 1]:
        return np.int64(len(nodes.unigram_starts)), np.int64(len(nodes.unigram_starts))  # only in a damaged file
    return begin, end


@numba.njit(cache=True, nogil=True, forceinline=True)
def child(nodes: Any, node: int, word: int) -> Any:
    """Return the child of an inner node that ends in `word`, or -1."""
    size = len(nodes.unigram_starts)
    low, end = children_of(nodes, node)
    length = end - low
    low -= size
    # A binary search for the last of the children whose word is not above the wanted one. Which half is taken is
    # arithmetic: as a branch it would be mispredicted every second time.
    while length > 1:
        half = length >> 1
        below = (read(nodes.words, nodes.word_width, low + half) - word - 1) >> 63  # all ones or all zeros
        low += half & below
        length -= half
    if length == 1 and read(nodes.words, nodes.word_width, low) == word:
        return low + size
    return np.int64(-1)


@numba.njit(cache=True, nogil=True)
def children(nodes: Any, queries: Any) -> None:
    """Replace the nodes in the first column of queries int64 `[B, 3]` by their `child` for the words in the second.

    All searches take each step together, until one child is left. No step waits for another search, so that the
    processor works on many at a time: several times as fast as one after the other. The third column is scratch.
    """
    nodes = borrow(nodes)
    size, words, width = len(nodes.unigram_starts), nodes.words, nodes.word_width
    halves = words.view(np.uint32)
    active = np.empty(len(queries), np.int32)  # the queries with more than one child left
    count = 0
    for i in range(len(queries)):  # independent reads, after which span_of finds its data in the cache
        row = max(queries[i, 0] - size, 0) >> BLOCK << 1
        queries[i, 2] = nodes.blocks[np.uint64(min(row, len(nodes.blocks) - 2))]
    for i in range(len(queries)):
        begin, end = children_of(nodes, queries[i, 0])
        queries[i, 0] = begin - size
        queries[i, 2] = end - begin
        active[count] = i
        count += end - begin > 1
    while count > 0:
        left = 0
        for a in range(count):
            i = active[a]
            half = queries[i, 2] >> 1
            middle = read_short(halves, width, queries[i, 0] + half)
            below = (middle - queries[i, 1] - 1) >> 63  # all ones or all zeros
            queries[i, 0] += half & below
            queries[i, 2] -= half
            active[left] = i
            left += queries[i, 2] > 1
        count = left
    for i in range(len(queries)):
        low = queries[i, 0]
        is_there = queries[i, 2] == 1 and read(words, width, low) == queries[i, 1]
        queries[i, 0] = low + size if is_there else -1


@numba.njit(cache=True, nogil=True)
def find_followers(nodes: Any, contexts: Any, words: Any, out: Any) -> None:
    """Write the nodes of contexts `[N]` (or SHORT or UNSEEN) followed by words `[N]` into out `[N]`, -1 if unknown."""
    queries = np.empty((min(QUERIES, len(contexts)), 3), np.int64)
    for first in range(0, len(contexts), QUERIES):
        count = min(QUERIES, len(contexts) - first)
        for i in range(count):
            queries[i, 0] = max(contexts[first + i], 0)
            queries[i, 1] = words[first + i]
        children(nodes, queries[:count])
        for i in range(count):
            out[first + i] = queries[i, 0] if contexts[first + i] >= 0 else -1


@numba.njit(cache=True, nogil=True, forceinline=True)
def find_suffixes(nodes: Any, bos: int, context: Any, out: Any) -> None:
    """Write the nodes of the last 1, 2, ... words of a context, or SHORT or UNSEEN, into out `[L]`.

    The node of the last m words is the child, by the last word, of the node of the m-1 words before it: each further
    word moves every node to the next order, with one search each. A context is read from its last `<s>` on.
    """
    out[:] = SHORT
    for word in context:
        for m in range(len(out) - 1, 0, -1):
            before = out[m - 1]
            if word == bos or before == SHORT:
                out[m] = SHORT
            elif before != UNSEEN:
                node = child(nodes, before, word)
                out[m] = node if node >= 0 else UNSEEN
            else:
                out[m] = UNSEEN
        if len(out) > 0:
            out[0] = word


@numba.njit(cache=True, nogil=True)
def find_contexts(nodes: Any, bos: int, contexts: Any, out: Any) -> None:
    """Write the nodes of the last 1, 2, ... L words of contexts `[N, C]`, or SHORT or UNSEEN, into out `[N, L]`."""
    nodes = borrow(nodes)
    for row in range(len(contexts)):
        find_suffixes(nodes, bos, contexts[row], out[row])


@numba.njit(cache=True, nogil=True)
def first_children(nodes: Any, first: int, out: Any) -> None:
    """Write where the children of nodes `first`, `first` + 1, ... begin into out `[M]`."""
    nodes = borrow(nodes)
    for i in range(len(out)):
        out[i] = first_child(nodes, first + i)


@numba.njit(cache=True, nogil=True)
def find_parents(nodes: Any, first: int, size: int, grams: Any, out: Any) -> None:
    """Write the parents of nodes `[M]` among the `size` nodes from `first` on, counted from there, into out `[M]`."""
    nodes = borrow(nodes)
    for i in range(len(grams)):
        # The last node whose children begin at or before this one.
        low: Any = np.int64(0)
        high: Any = np.int64(size)
        while high - low > 1:
            middle = (low + high) >> 1
            if first_child(nodes, first + middle) <= grams[i]:
                low = middle
            else:
                high = middle
        out[i] = low
