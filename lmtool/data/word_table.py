"""Words as bytes for compiled code: a hash table from words to their numbers, and lines of words and numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import Array, FloatArray, IntArray

WORD = (1 << 32) - 1  # the bits of a slot that hold the number of its word
SIGNIFICANT = -1  # instead of a number of decimals: nine significant digits, which distinguish all float32 numbers
MAX_NUMBER_BYTES = 32
MAX_EXACT = 9e15  # whole numbers up to here are exact in float64
TAB, LINE_FEED, SPACE, MINUS, POINT, ZERO = 9, 10, 32, 45, 46, 48  # characters


def join_words(words: Sequence[str]) -> tuple[IntArray, npt.NDArray[np.uint8]]:
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
        self.starts = _grow(self.starts, len(self.slots) // 2 + 1)
        self.arena = _grow(self.arena, int(self.starts[self.size]) + letters)

    def double(self) -> None:
        self.slots = np.full(2 * len(self.slots), -1, dtype=np.int64)
        self.starts = _grow(self.starts, len(self.slots) // 2 + 1)
        _fill(self.slots, self.starts, self.arena, self.size)


def _grow(array: Array, size: int) -> Array:
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


def text_lines(
    before: FloatArray,
    words: IntArray,
    after: FloatArray,
    decimals: list[int],
    joined: tuple[IntArray, npt.NDArray[np.uint8]],
) -> bytes:
    """Return M lines of numbers `[M, B]`, words `[M, k]` and numbers `[M, A]`, with tabs between numbers and words and
    spaces between words.

    decimals: number of decimals of each column of numbers, `[B + A]`, or SIGNIFICANT. joined: the result of join_words.
    Numbers that are too large for their decimals are written as 1.2345e+20, nan as an empty string.
    """
    lengths = np.diff(joined[0])
    room = int(lengths[words].sum()) + len(words) * (len(decimals) * (MAX_NUMBER_BYTES + 1) + words.shape[1] + 1)
    out = np.empty(room, dtype=np.uint8)
    return out[: int(_write_lines(before, words, after, np.array(decimals, dtype=np.int64), *joined, out))].tobytes()


@numba.njit(cache=True, nogil=True)
def _write_lines(before: Any, words: Any, after: Any, decimals: Any, starts: Any, letters: Any, out: Any) -> Any:
    """Write lines into `out`; return the number of bytes.

    Compiled, because short texts are scored, and n-grams read, faster than Python formats lines. The plain form is
    `"\\t".join(f"{value:.{d}f}" ...)`, which tests/evaluation/test_text_scores.py and tests/ngram compare it to.
    """
    at = 0
    for i in range(len(words)):
        for j in range(before.shape[1]):
            at = _write_number(before[i, j], decimals[j], out, at)
            out[at] = TAB
            at += 1
        for j in range(words.shape[1]):
            for k in range(starts[words[i, j]], starts[words[i, j] + 1]):
                out[at] = letters[k]
                at += 1
            out[at] = SPACE if j + 1 < words.shape[1] else TAB
            at += 1
        for j in range(after.shape[1]):
            at = _write_number(after[i, j], decimals[before.shape[1] + j], out, at)
            out[at] = TAB
            at += 1
        out[at - 1] = LINE_FEED
    return at


@numba.njit(cache=True, nogil=True)
def _write_number(value: float, decimals: int, out: Any, at: int) -> Any:
    """Write a number; return the position after it."""
    if np.isnan(value):
        return at
    if value < 0:
        out[at] = MINUS
        at += 1
        value = -value
    if np.isinf(value):
        out[at], out[at + 1], out[at + 2] = 105, 110, 102
        return at + 3
    trimmed = decimals == SIGNIFICANT
    if trimmed:
        decimals, scaled = 8, value
        while 0 < scaled < 1 and decimals < 18:
            scaled *= 10.0
            decimals += 1
    exponent = 0
    if value * 10.0**decimals >= MAX_EXACT:
        while np.round(value * 10.0**decimals) >= 10.0 ** (decimals + 1):  # 9.99999 is rounded to 10
            value /= 10
            exponent += 1
    whole: Any = np.int64(value)
    power = np.int64(10) ** decimals
    part: Any = np.int64(np.round((value - whole) * power))
    if part >= power:
        whole, part = whole + 1, part - power
    at = _write_whole(whole, 1, out, at)
    if decimals > 0 and not (trimmed and part == 0):
        out[at] = POINT
        at = _write_whole(part, decimals, out, at + 1)
        while trimmed and out[at - 1] == ZERO:
            at -= 1
    if exponent:
        out[at], out[at + 1] = 101, 43  # e+
        at = _write_whole(exponent, 2, out, at + 2)
    return at


@numba.njit(cache=True, nogil=True)
def _write_whole(value: int, digits: int, out: Any, at: int) -> Any:
    """Write a whole number of 0 or more with at least this many digits; return the position after it."""
    size = digits
    rest = value // np.int64(10) ** digits
    while rest > 0:
        rest //= 10
        size += 1
    for k in range(size - 1, -1, -1):
        out[at + k] = ZERO + value % 10
        value //= 10
    return at + size
