"""A hash table from words to their numbers, for compiled code; the words are new types or a known vocabulary."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

WORD = (1 << 32) - 1  # the bits of a slot that hold the number of its word


def join_words(words: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the start of each word in the bytes of all words, and the end of the last, `[W + 1]`, and these bytes."""
    encoded = [word.encode() for word in words]
    starts = np.cumsum([0, *(len(word) for word in encoded)])
    return starts, np.frombuffer(b"".join(encoded) + b"\0", dtype=np.uint8)


class WordTable:
    """A hash table from the bytes of words, all different, to their numbers, for compiled code.

    slots: int64, open addressing, at most half full; -1, or the word's number in the lower 32 bits and below the sign
    31 bits of its hash, which settle nearly all comparisons without another cache miss. The bytes of word w are
    arena[starts[w]:starts[w + 1]]. The kernels take the three arrays; `find_slot` is the only look-up.
    """

    def __init__(self, words: Sequence[str] = (), min_slots: int = 4) -> None:
        """min_slots: a power of two."""
        self.starts, arena = join_words(words)
        self.arena = arena.copy()  # a writable copy
        self.size = len(words)
        self.slots = np.full(max(1 << (2 * len(words)).bit_length(), min_slots), -1, dtype=np.int64)
        _fill(self.slots, self.starts, self.arena, self.size)

    def words(self, first: int = 0) -> list[str]:
        """Return the words from number `first` on, in their order."""
        starts = self.starts[first : self.size + 1].tolist()
        letters = self.arena[starts[0] : starts[-1]].tobytes()
        return [letters[a - starts[0] : b - starts[0]].decode("utf-8") for a, b in itertools.pairwise(starts)]

    def reserve(self, letters: int) -> None:
        """Make room for words of this number of bytes in total, limited by the slots."""
        self.starts = _grown(self.starts, len(self.slots) // 2 + 1)
        self.arena = _grown(self.arena, int(self.starts[self.size]) + letters)

    def double(self) -> None:
        self.slots = np.full(2 * len(self.slots), -1, dtype=np.int64)
        self.starts = _grown(self.starts, len(self.slots) // 2 + 1)
        _fill(self.slots, self.starts, self.arena, self.size)


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the array, or a copy of it with `size` entries or more."""
    if len(array) >= size:
        return array
    larger = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@numba.njit(cache=True, nogil=True, inline="always")
def hash_bytes(block: Any, first: int, last: int) -> Any:
    """Compute FNV-1a of bytes `first` to before `last`, its high bits folded down because tables use the low ones."""
    value = np.uint64(14695981039346656037)
    for i in range(first, last):
        value = (value ^ np.uint64(block[i])) * np.uint64(1099511628211)
    return value ^ (value >> np.uint64(29))


@numba.njit(cache=True, nogil=True)
def _fill(slots: Any, starts: Any, arena: Any, size: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for word in range(size):
        hashed = hash_bytes(arena, starts[word], starts[word + 1])
        slot = hashed & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = entry(hashed, word)


@numba.njit(cache=True, nogil=True)
def entry(hashed: Any, word: Any) -> Any:
    return np.int64(hashed >> np.uint64(33)) << np.int64(32) | np.int64(word)


@numba.njit(cache=True, nogil=True)
def _is_word(word: Any, block: Any, first: int, last: int, starts: Any, arena: Any) -> Any:
    """Return whether a word has the bytes `first` to before `last`; a loop is faster than calling memcmp."""
    start = starts[word]
    if starts[word + 1] - start != last - first:
        return False
    for i in range(last - first):  # noqa: SIM110 - Numba does not compile generators
        if arena[start + i] != block[first + i]:
            return False
    return True


@numba.njit(cache=True, nogil=True, inline="always")
def find_slot(block: Any, first: int, last: int, hashed: Any, slots: Any, starts: Any, arena: Any) -> Any:
    """Return the slot of the word in bytes `first` to before `last`, or the empty slot where it belongs.

    Numba inlines it: a call would copy the pointer, shape and strides of each of the four arrays for every word.
    """
    mask = np.uint64(len(slots) - 1)
    tag = np.int64(hashed >> np.uint64(33))
    slot = hashed & mask
    while slots[slot] >= 0 and not (
        slots[slot] >> np.int64(32) == tag and _is_word(slots[slot] & WORD, block, first, last, starts, arena)
    ):
        slot = (slot + np.uint64(1)) & mask
    return slot


@numba.njit(cache=True, nogil=True)
def find_word(block: Any, first: int, last: int, slots: Any, starts: Any, arena: Any) -> Any:
    """Return the number of the word in bytes `first` to before `last`, -1 if it is not in the table."""
    slot = find_slot(block, first, last, hash_bytes(block, first, last), slots, starts, arena)
    return slots[slot] & WORD if slots[slot] >= 0 else np.int64(-1)


@numba.njit(cache=True, nogil=True)
def find_words(block: Any, spans: Any, slots: Any, starts: Any, arena: Any, numbers: Any) -> None:
    """Write the numbers `[M, k]` of the words in spans `[M, k, 2]` of a block, -1 for those not in the table."""
    for i in range(spans.shape[0]):
        for j in range(spans.shape[1]):
            numbers[i, j] = find_word(block, spans[i, j, 0], spans[i, j, 1], slots, starts, arena)
