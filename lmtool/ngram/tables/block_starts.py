"""The starts of children, in as few bits as each block of 64 nodes needs: the small form of a trie's starts.

Most n-grams have one child. So the start of node j of a block is about the block's base + j, and only the difference is
packed, in the width of the block's largest difference: 5 bits per node, bases included, for the n-grams of 20 million
words; one width for all blocks takes 18.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba.extending import overload

from lmtool.ngram.tables.packed import interpreted, read, read_bits
from lmtool.ngram.tables.storage import Storage

Array = npt.NDArray[Any]
BLOCK = 5  # log2 of the number of nodes that share a base, if all blocks have one width
SMALL_BLOCK = 6  # log2 of that number in the small form
SMALL_NODES = 1 << SMALL_BLOCK
STARTS_PER_PIECE = 1 << 20  # starts in memory at once
SPARE_CELLS = 2  # behind the last number, into which `read` may look
WIDTH_BITS, MOST_WIDTH = 5, 31  # two numbers fit into one read


def start_of(nodes: Any, inner: Any) -> Any:
    """Return the start of the children of a node from order 2 on, for compiled code.

    nodes: trie.Nodes, whose form decides: all blocks have one width, or each its own if start_width is None.
    inner: the node, counted from the first of order 2.
    """
    return interpreted(_start_of, nodes, inner)


def span_of(nodes: Any, node: Any) -> Any:
    """Return the start and end of the children of a node of any order: start_of the node and of the next node."""
    return interpreted(_span_of, nodes, node)


def look_up_blocks(nodes: Any, queries: Any) -> Any:
    """Read the first data that span_of needs of the nodes in the first column of queries `[B, 3]` into their third
    column.

    These reads are independent, and span_of then finds the data in the cache. No-op if all blocks have one width.
    """
    return interpreted(_look_up_blocks, nodes, queries)


def _is_small(nodes: Any) -> bool:
    return isinstance(nodes.types[nodes.fields.index("start_width")], numba.types.NoneType)


@overload(start_of, jit_options={"forceinline": True})
def _start_of(nodes: Any, inner: Any) -> Any:
    def of_one_width(nodes: Any, inner: Any) -> Any:
        return nodes.base[inner >> BLOCK] + read(nodes.starts, nodes.start_width, inner)

    def small(nodes: Any, inner: Any) -> Any:
        row, place, at, width = _block_of(nodes.base, inner)
        return nodes.base[row] + place + read_bits(nodes.starts, at, width)

    return small if _is_small(nodes) else of_one_width


@overload(span_of, jit_options={"forceinline": True})
def _span_of(nodes: Any, node: Any) -> Any:
    def of_one_width(nodes: Any, node: Any) -> Any:
        unigram_starts, inner = nodes.unigram_starts, node - len(nodes.unigram_starts)
        begin = unigram_starts[node] if inner < 0 else start_of(nodes, inner)
        end = unigram_starts[node + 1] if inner < -1 else start_of(nodes, inner + 1)
        return begin, end

    def small(nodes: Any, node: Any) -> Any:
        unigram_starts, inner = nodes.unigram_starts, node - len(nodes.unigram_starts)
        if inner < -1:
            return unigram_starts[node], unigram_starts[node + 1]
        if inner < 0:
            return unigram_starts[node], start_of(nodes, 0)
        # Both numbers are adjacent and are read together.
        row, place, at, width = _block_of(nodes.base, inner)
        both = read_bits(nodes.starts, at, 2 * width)
        first = nodes.base[row] + place
        return first + (both & ((1 << width) - 1)), first + 1 + (both >> width)

    return small if _is_small(nodes) else of_one_width


@numba.njit(cache=True, nogil=True, forceinline=True)
def _block_of(base: Any, inner: int) -> Any:
    """Return the row of a node's block in base, its place there, and the first bit and the width of its number."""
    row = np.uint64(min(inner >> SMALL_BLOCK << 1, len(base) - 2))  # beyond only in a damaged file
    place = inner & (SMALL_NODES - 1)
    width = base[row + np.uint64(1)] & MOST_WIDTH
    return row, place, np.uint64((base[row + np.uint64(1)] >> WIDTH_BITS) + place * width), width


@overload(look_up_blocks)
def _look_up_blocks(nodes: Any, queries: Any) -> Any:
    def of_one_width(nodes: Any, queries: Any) -> Any:
        pass

    def small(nodes: Any, queries: Any) -> Any:
        base, size = nodes.base, len(nodes.unigram_starts)
        for i in range(len(queries)):
            row = max(queries[i, 0] - size, 0) >> SMALL_BLOCK << 1
            queries[i, 2] = base[np.uint64(min(row, len(base) - 2))]

    return small if _is_small(nodes) else of_one_width


def small_starts(inner: Callable[[int, int], Array], count: int, storage: Storage) -> tuple[Array, Array] | None:
    """Return the small form of `count` ascending starts: its base int64 `[2 B]` and its starts uint64.

    inner: returns the starts from number `first` to before `last`, int64. base: for each of B blocks the minimum of
    start - place, then `bit << 5 | width` of its numbers; each block ends with the first number of the next. Returns
    None if a block would need more than 31 bits.
    """
    blocks = (count + SMALL_NODES - 1) >> SMALL_BLOCK
    base = storage.empty(2 * blocks, np.int64)
    bit = 0
    pieces = [(a, min(a + STARTS_PER_PIECE, count)) for a in range(0, count, STARTS_PER_PIECE)]  # whole blocks
    for first, last in pieces:
        bit = int(
            _choose_widths(inner(first, min(last + 1, count)), last - first, base[first >> SMALL_BLOCK << 1 :], bit)
        )
        storage.keep_within()
        if bit < 0:
            return None
    starts = storage.zeros(
        (bit + (SMALL_NODES + 1) * MOST_WIDTH >> 6) + SPARE_CELLS, np.uint64
    )  # room for a whole block
    for first, last in pieces:
        _pack_blocks(inner(first, min(last + 1, count)), last - first, base[first >> SMALL_BLOCK << 1 :], starts)
        storage.keep_within()
    return base, starts


def require_within(base: Array, starts: Array, count: int) -> None:
    """Raise ValueError if the numbers of a block would lie outside the array, as in a damaged file."""
    if len(base) != (count + SMALL_NODES - 1) >> SMALL_BLOCK << 1:
        raise ValueError("the blocks of starts are wrong")
    bits, widths = base[1::2] >> WIDTH_BITS, base[1::2] & MOST_WIDTH
    if (bits < 0).any() or ((bits + (SMALL_NODES + 1) * widths >> 6) + SPARE_CELLS > len(starts)).any():
        raise ValueError("starts is too short")


@numba.njit(cache=True, nogil=True)
def _choose_widths(values: Any, count: int, base: Any, bit: int) -> Any:
    """Fill in the rows of base of `count` starts, whose numbers lie from `bit` on. Returns the bit after them.

    values: the starts and, if it exists, the next start. Returns -1 if a width would be too large.
    """
    for first in range(0, count, SMALL_NODES):
        numbers = min(SMALL_NODES + 1, len(values) - first)
        least = values[first]
        most = values[first]
        for j in range(numbers):
            least = min(least, values[first + j] - j)
            most = max(most, values[first + j] - j)
        width = 0
        while (most - least) >> width > 0:
            width += 1
        if width > MOST_WIDTH:
            return -1
        row = first >> SMALL_BLOCK << 1
        base[row] = least
        base[row + 1] = bit << WIDTH_BITS | width
        bit += numbers * width
    return bit


@numba.njit(cache=True, nogil=True)
def _pack_blocks(values: Any, count: int, base: Any, starts: Any) -> None:
    for first in range(0, count, SMALL_NODES):
        row = first >> SMALL_BLOCK << 1
        least, width, at = base[row], base[row + 1] & MOST_WIDTH, base[row + 1] >> WIDTH_BITS
        for j in range(min(SMALL_NODES + 1, len(values) - first)):
            value = np.uint64(values[first + j] - j - least)
            shift = np.uint64(at & 63)
            starts[at >> 6] |= value << shift
            if (at & 63) + width > 64:
                starts[(at >> 6) + 1] |= value >> (np.uint64(64) - shift)
            at += width
