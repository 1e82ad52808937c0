"""Keys of n-grams: made from a text, sorted, and equal ones counted.

The key of an n-gram of order k is its first k-1 words, as a node of the trie, and its last word: node << word width |
word, at most 64 bits. Keys use far fewer bits than 64, so that a radix sort, which reads each used bit once, is several
times as fast as comparing. It is stable: equal keys keep the order of the text.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.system.parallel import cut_evenly, run

Array = npt.NDArray[Any]
DIGIT = 11  # bits per pass, at most: 2,048 counters and positions stay in the first-level cache


def no_ngram(row: Array) -> Any:
    """What an array of numbers of n-grams has where none of an order ends, as its sentence is shorter up to there."""
    return row.dtype.type(np.iinfo(row.dtype).max)


def keys_of(words: Array, row: Array, bos: int, word_width: int, first: int, last: int) -> tuple[Array, Array]:
    """The keys uint64 `[N]` of the n-grams that end at positions `first` to before `last`, in the order of the text,
    and these positions `[N]`, of the type of `row`.

    words: the text, `[T]`. row: the n-gram one shorter that ends at each position, `[T]`, or no_ngram(row).
    """
    none = no_ngram(row)
    cuts = [(max(first + a, 1), first + b) for a, b in cut_evenly(last - first)]
    found = run((_count_keys, words, row, none, bos, a, b) for a, b in cuts)
    ends = np.cumsum([0, *found])
    keys = np.empty(ends[-1], dtype=np.uint64)
    positions = np.empty(ends[-1], dtype=row.dtype)
    run(
        (_keys, words, row, none, bos, word_width, a, b, keys[ends[t] :], positions[ends[t] :])
        for t, (a, b) in enumerate(cuts)
    )
    return keys, positions


def sort_keys(keys: Array, values: Array, bits: int) -> tuple[Array, Array]:
    """Sort keys uint64 `[N]` of at most `bits` bits, and values `[N]` along with them, by several threads.

    Both arrays are overwritten; the result may be these or two others.
    """
    passes = -(-bits // DIGIT)
    digit = -(-bits // max(passes, 1))
    keys_out, values_out = np.empty_like(keys), np.empty_like(values)
    cuts = cut_evenly(len(keys))
    for p in range(passes):
        shift = p * digit
        counts = np.zeros((len(cuts), 1 << digit), dtype=np.int64)
        run([(_histogram, keys[a:b], shift, digit, counts[t]) for t, (a, b) in enumerate(cuts)])
        if (counts.sum(axis=0) == len(keys)).any():
            continue  # all keys have this digit in common
        # Where the first key of each digit of each thread goes: by digit, then by thread.
        places = (np.cumsum(counts.T) - counts.T.reshape(-1)).reshape(counts.T.shape).T.copy()
        run(
            [
                (_scatter, keys[a:b], values[a:b], shift, digit, places[t], keys_out, values_out)
                for t, (a, b) in enumerate(cuts)
            ],
        )
        keys, keys_out, values, values_out = keys_out, keys, values_out, values
    return keys, values


def count_keys(keys: Array, positions: Array, row: Array, next_row: Array) -> tuple[Array, Array, Array]:
    """The U distinct ones of sorted keys `[N]`: keys uint64 `[U]`, suffixes and counts `[U]` of the type of `row`.

    positions: where the n-gram of each key ends, `[N]`. row: the n-gram one shorter that ends at each position of the
    text, which is the suffix of the longer one. next_row: gets the number of the distinct key at each of the positions,
    unless it is empty.
    """
    cuts = cut_evenly(len(keys))
    distinct = run([(_count_distinct, keys, a, b) for a, b in cuts])
    before = np.cumsum([0, *distinct])
    unique = np.empty(before[-1], dtype=np.uint64)
    suffixes, counts = np.empty(before[-1], dtype=row.dtype), np.empty(before[-1], dtype=row.dtype)
    run(
        [
            (_collapse, keys, positions, a, b, before[t], row, next_row, unique, suffixes, counts)
            for t, (a, b) in enumerate(cuts)
        ]
    )
    return unique, suffixes, counts


def sort_in_memory(
    words: Array, row: Array, bos: int, word_width: int, key_width: int, highest: bool
) -> tuple[Array, Array, Array, Array]:
    """The n-grams of the next order: keys, suffixes and counts `[U]`, and which of them ends where, `[T]`.

    words, row: as keys_of has them. key_width: bits of a key. highest: whether this is the highest order, for which the
    last array is empty.
    """
    keys, positions = keys_of(words, row, bos, word_width, 0, len(words))
    keys, positions = sort_keys(keys, positions, key_width)
    next_row = np.full(0 if highest else len(words), no_ngram(row), dtype=row.dtype)
    keys, suffixes, counts = count_keys(keys, positions, row, next_row)
    return keys, suffixes, counts, next_row


@numba.njit(cache=True, nogil=True)
def _count_keys(words: Any, row: Any, none: Any, bos: int, first: int, last: int) -> Any:
    count = 0
    for i in range(first, last):
        if row[i - 1] != none and words[i] != bos:
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _keys(
    words: Any, row: Any, none: Any, bos: int, word_width: int, first: int, last: int, keys: Any, positions: Any
) -> None:
    count = 0
    for i in range(first, last):
        context = row[i - 1]
        if context != none and words[i] != bos:
            keys[count] = (np.uint64(context) << np.uint64(word_width)) | np.uint64(words[i])
            positions[count] = i
            count += 1


@numba.njit(cache=True, nogil=True)
def _histogram(keys: Any, shift: int, bits: int, counts: Any) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(len(keys)):
        counts[(keys[i] >> np.uint64(shift)) & mask] += 1


@numba.njit(cache=True, nogil=True)
def _scatter(keys: Any, values: Any, shift: int, bits: int, places: Any, keys_out: Any, values_out: Any) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(len(keys)):
        digit = (keys[i] >> np.uint64(shift)) & mask
        place = places[digit]
        places[digit] = place + 1
        keys_out[place] = keys[i]
        values_out[place] = values[i]


@numba.njit(cache=True, nogil=True)
def _count_distinct(keys: Any, first: int, last: int) -> Any:
    """How many keys from `first` to before `last` differ from the one before them."""
    count = 0
    for i in range(first, last):
        if i == 0 or keys[i] != keys[i - 1]:
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _collapse(
    keys: Any,
    positions: Any,
    first: int,
    last: int,
    before: int,
    row: Any,
    next_row: Any,
    unique: Any,
    suffixes: Any,
    counts: Any,
) -> None:
    at = before - 1
    begin = first
    while 0 < begin < len(keys) and keys[begin - 1] == keys[begin]:
        begin -= 1  # equal keys are counted by the piece with the last of them
    for i in range(first, last):
        if i == 0 or keys[i] != keys[i - 1]:
            at += 1
            unique[at] = keys[i]
            suffixes[at] = row[positions[i]]
            begin = i
        if len(next_row) > 0:
            next_row[positions[i]] = at
        if i == len(keys) - 1 or keys[i + 1] != keys[i]:
            counts[at] = i + 1 - begin
