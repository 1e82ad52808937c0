"""The starts of children, in as few bits as each block of 64 nodes needs.

Most n-grams have one child. So the start of node j of a block is about the block's base + j, and only the difference is
packed, in the width of the block's largest difference: 5 bits per node, bases included, for the n-grams of 20 million
words; one width for all blocks takes 18.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.ngram.tables.packed import read_bits
from lmtool.ngram.tables.storage import Storage

Array = npt.NDArray[Any]
BLOCK = 6  # log2 of the number of nodes of a block
NODES = 1 << BLOCK
SPARE_CELLS = 2  # behind the last number, into which `read_bits` may look
WIDTH_BITS, MAX_WIDTH = 5, 31  # two numbers fit into one read


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
