"""Sort the n-grams of an order, so that equal ones come together, and count them.

The key of an n-gram of order k is its first k-1 words, as a node of the trie, and its last word: node << word width |
word, at most 64 bits. If memory suffices, all keys are sorted at once. Otherwise pieces of the text are sorted into
runs on disk, which are merged range by range: all keys up to a bound, as many as fit into memory, are taken from each
run and sorted together, then those up to the next bound. The result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.tables.storage import Storage
from lmtool.system.parallel import cut_evenly, run

Array = npt.NDArray[Any]
BYTES_PER_KEY = 96  # in a run: key and position, the sort's copy of both, distinct keys, and pages of files
MIN_RUN_TOKENS = 1024
MAX_DIGIT_BITS = 11  # bits per pass: 2,048 counters and positions stay in the first-level cache


def sort_keys(keys: Array, values: Array, bits: int) -> tuple[Array, Array]:
    """Sort keys uint64 `[N]` of at most `bits` bits, and values `[N]` along with them, by several threads; equal keys
    keep their order. Both arrays are overwritten; the result may be these or two others.

    Keys of n-grams use far fewer bits than 64, so that a radix sort, which reads each used bit once, is several times
    as fast as comparing.
    """
    passes = -(-bits // MAX_DIGIT_BITS)
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
            (_scatter, keys[a:b], values[a:b], shift, digit, places[t], keys_out, values_out)
            for t, (a, b) in enumerate(cuts)
        )
        keys, keys_out, values, values_out = keys_out, keys, values_out, values
    return keys, values


@numba.njit(cache=True, nogil=True)
def _histogram(keys: Any, shift: int, bits: int, counts: Any) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(len(keys)):
        counts[(keys[i] >> np.uint64(shift)) & mask] += 1


@numba.njit(cache=True, nogil=True)
def _scatter(keys: Any, values: Any, shift: int, bits: int, places: Any, keys_out: Any, values_out: Any) -> None:
    # The plain form is np.argsort(kind="stable"), which tests/ngram/test_counts.py compares it with. Each thread writes
    # only to its own places, so that no two threads wait for each other.
    mask = np.uint64((1 << bits) - 1)
    for i in range(len(keys)):
        digit = (keys[i] >> np.uint64(shift)) & mask
        place = places[digit]
        places[digit] = place + 1
        keys_out[place] = keys[i]
        values_out[place] = values[i]


@dataclass(frozen=True, slots=True)
class Run:
    """The distinct n-grams that end at positions `first` to before `last`: ascending keys, suffixes, counts, `[U]`.

    numbers: of each of them among those of all runs, `[U]`; empty for the highest order.
    """

    first: int
    last: int
    keys: Array
    suffixes: Array
    counts: Array
    numbers: Array


def no_ngram(row: Array) -> Any:
    """Return the number in `row` of positions where no n-gram of the order ends, as the sentence is too short there."""
    return row.dtype.type(np.iinfo(row.dtype).max)


def sort_ngrams(
    words: Array, row: Array, bos: int, word_width: int, key_width: int, highest: bool, storage: Storage
) -> tuple[Array, Array, Array, Array]:
    """Return the n-grams of the next order: keys uint64, suffixes and counts `[U]`, and which one ends where, `[T]`.

    words: the text, `[T]`. row: the n-gram one shorter that ends at each position, `[T]`, or no_ngram(row); it is the
    suffix of the longer one. key_width: bits of a key. highest: whether this is the highest order, for which the last
    array is empty. Raises UserError if the disk is full.
    """
    piece = len(words) if storage.memory is None else max(storage.memory // BYTES_PER_KEY, MIN_RUN_TOKENS)
    none = no_ngram(row)
    next_row = storage.empty(0 if highest else len(words), row.dtype)
    runs: list[Run] = []
    for first in range(0, len(words), piece):
        last = min(first + piece, len(words))
        keys, positions = sort_keys(*_keys_of(words, row, bos, word_width, first, last), key_width)
        next_row[first:last] = none
        keys, suffixes, counts = _count_keys(keys, positions, row, next_row)  # next_row counts within the run
        if piece >= len(words):
            return keys, suffixes, counts, next_row
        numbers = storage.empty(0 if highest else len(keys), row.dtype)
        keys, suffixes, counts = (_stored(part, storage) for part in (keys, suffixes, counts))
        runs.append(Run(first, last, keys, suffixes, counts, numbers))
        del keys, positions, suffixes, counts
        storage.release()  # the next piece takes half of the memory by itself
    keys, suffixes, counts = _merge(runs, key_width, piece, highest, storage)
    for part in [] if highest else runs:
        for first, last in storage.pieces(part.last - part.first):
            _renumber(next_row[part.first + first : part.first + last], part.numbers, none)
    return keys, suffixes, counts, next_row


def _keys_of(words: Array, row: Array, bos: int, word_width: int, first: int, last: int) -> tuple[Array, Array]:
    """Return the keys uint64 `[N]` of the n-grams that end at positions `first` to before `last`, in text order, and
    these positions `[N]`, of the type of `row`.
    """
    none = no_ngram(row)
    cuts = [(max(first + a, 1), first + b) for a, b in cut_evenly(last - first)]
    sizes = run((_count_ends, words, row, none, bos, a, b) for a, b in cuts)
    ends = np.cumsum([0, *sizes])
    keys = np.empty(ends[-1], dtype=np.uint64)
    positions = np.empty(ends[-1], dtype=row.dtype)
    run(
        (_make_keys, words, row, none, bos, word_width, a, b, keys[ends[t] :], positions[ends[t] :])
        for t, (a, b) in enumerate(cuts)
    )
    return keys, positions


def _count_keys(keys: Array, positions: Array, row: Array, next_row: Array) -> tuple[Array, Array, Array]:
    """Return the U distinct ones of sorted keys `[N]`: keys uint64 `[U]`, suffixes and counts `[U]` of the type of
    `row`.

    positions: where the n-gram of each key ends, `[N]`. next_row: gets the number of the distinct key at each of the
    positions, unless it is empty.
    """
    cuts = cut_evenly(len(keys))
    distinct = run((_count_distinct, keys, a, b) for a, b in cuts)
    before = np.cumsum([0, *distinct])
    unique = np.empty(before[-1], dtype=np.uint64)
    suffixes, counts = np.empty(before[-1], dtype=row.dtype), np.empty(before[-1], dtype=row.dtype)
    run(
        (_collapse, keys, positions, a, b, before[t], row, next_row, unique, suffixes, counts)
        for t, (a, b) in enumerate(cuts)
    )
    return unique, suffixes, counts


def _stored(values: Array, storage: Storage) -> Array:
    stored = storage.empty(len(values), values.dtype)
    stored[:] = values
    return stored


def _merge(runs: list[Run], key_width: int, piece: int, highest: bool, storage: Storage) -> tuple[Array, Array, Array]:
    """Merge the runs into keys, suffixes and counts; fill in the runs' numbers, unless the order is the highest."""
    total = sum(len(part.keys) for part in runs)
    kind = runs[0].suffixes.dtype
    keys = storage.empty(total, np.uint64)
    suffixes, counts = storage.empty(total, kind), storage.empty(total, kind)
    at = [0] * len(runs)
    written = 0
    share = max(piece // len(runs), 1)
    while any(place < len(part.keys) for place, part in zip(at, runs, strict=True)):
        open_runs = [(place, part) for place, part in zip(at, runs, strict=True) if place < len(part.keys)]
        # No run has more than its share of keys up to the bound, and one of them has exactly that many.
        bound = min(part.keys[min(place + share, len(part.keys)) - 1] for place, part in open_runs)
        ends = [
            place + int(np.searchsorted(part.keys[place : place + share], bound, side="right"))
            for part, place in zip(runs, at, strict=True)
        ]
        slices = [(part, slice(first, last)) for part, first, last in zip(runs, at, ends, strict=True)]
        merged = np.concatenate([part.keys[here] for part, here in slices])
        suffix = np.concatenate([part.suffixes[here] for part, here in slices])
        count = np.concatenate([part.counts[here] for part, here in slices])
        numbers = np.empty(0 if highest else len(merged), dtype=kind)
        merged, order = sort_keys(merged, np.arange(len(merged), dtype=np.uint32), key_width)
        written = int(_append(merged, order, suffix, count, numbers, keys, suffixes, counts, written))
        for part, here in [] if highest else slices:
            size = here.stop - here.start
            part.numbers[here], numbers = numbers[:size], numbers[size:]
        at = ends
        storage.keep_within()
    return keys[:written], suffixes[:written], counts[:written]


# The kernels below count first and write later, so that each thread knows where its part of the result begins and no
# array is larger than needed. The plain form is np.unique with counts; tests/ngram/test_counts.py compares both ways.


@numba.njit(cache=True, nogil=True)
def _count_ends(words: Any, row: Any, none: Any, bos: int, first: int, last: int) -> Any:
    """Return the number of n-grams that end at positions `first` to before `last`."""
    count = 0
    for i in range(first, last):
        if row[i - 1] != none and words[i] != bos:
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _make_keys(
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
def _count_distinct(keys: Any, first: int, last: int) -> Any:
    """Return the number of keys from `first` to before `last` that differ from the one before them."""
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


@numba.njit(cache=True, nogil=True)
def _append(
    merged: Any,
    order: Any,
    suffix: Any,
    count: Any,
    numbers: Any,
    keys: Any,
    suffixes: Any,
    counts: Any,
    written: int,
) -> Any:
    for i in range(len(merged)):
        if i == 0 or merged[i] != merged[i - 1]:
            keys[written] = merged[i]
            suffixes[written] = suffix[order[i]]
            counts[written] = 0
            written += 1
        counts[written - 1] += count[order[i]]
        if len(numbers) > 0:
            numbers[order[i]] = written - 1
    return written


@numba.njit(cache=True, nogil=True)
def _renumber(row: Any, numbers: Any, none: Any) -> None:
    for i in range(len(row)):
        if row[i] != none:
            row[i] = numbers[row[i]]
