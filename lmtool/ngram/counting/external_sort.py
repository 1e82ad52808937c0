"""Sorting n-grams that do not fit into memory: sorted runs on disk, which are merged range by range.

A run is what memory_sort.py makes of a piece of the text. All keys up to a bound, as many as fit into memory, are taken
from each run and sorted together, then those up to the next bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.counting.memory_sort import count_keys, keys_of, no_ngram, sort_keys
from lmtool.ngram.tables.storage import Storage

Array = npt.NDArray[Any]
BYTES_PER_KEY = 96  # in a run: key and position, the sort's copy of both, distinct keys, and pages of files


@dataclass(frozen=True, slots=True)
class Run:
    """The distinct n-grams that end at positions `first` to before `last`: ascending keys, suffixes, counts, `[U]`.

    numbers: of each of them among those of all runs, `[U]`; empty where they are not wanted.
    """

    first: int
    last: int
    keys: Array
    suffixes: Array
    counts: Array
    numbers: Array


def sort_in_runs(
    words: Array, row: Array, bos: int, word_width: int, key_width: int, highest: bool, storage: Storage, memory: int
) -> tuple[Array, Array, Array, Array]:
    """The same as memory_sort.sort_in_memory, in about `memory` bytes; large arrays lie in files of `storage`.

    Raises UserError where the disk is full.
    """
    piece = max(memory // BYTES_PER_KEY, 1024)
    none = no_ngram(row)
    next_row = storage.empty(0 if highest else len(words), row.dtype)
    runs: list[Run] = []
    for first in range(0, len(words), piece):
        last = min(first + piece, len(words))
        next_row[first:last] = none
        keys, positions = keys_of(words, row, bos, word_width, first, last)
        keys, positions = sort_keys(keys, positions, key_width)
        # next_row now counts within the run.
        keys, suffixes, counts = (_stored(part, storage) for part in count_keys(keys, positions, row, next_row))
        numbers = storage.empty(0 if highest else len(keys), row.dtype)
        runs.append(Run(first, last, keys, suffixes, counts, numbers))
        del keys, positions, suffixes, counts
        storage.release()  # the next piece takes half of the memory by itself
    keys, suffixes, counts = _merge(runs, key_width, piece, highest, storage)
    for part in [] if highest else runs:
        for first, last in storage.pieces(part.last - part.first):
            _renumber(next_row[part.first + first : part.first + last], part.numbers, none)
    return keys, suffixes, counts, next_row


def _stored(values: Array, storage: Storage) -> Array:
    stored = storage.empty(len(values), values.dtype)
    stored[:] = values
    return stored


def _merge(runs: list[Run], key_width: int, piece: int, highest: bool, storage: Storage) -> tuple[Array, Array, Array]:
    """The runs as one: keys, suffixes, counts; fills in the runs' numbers, unless the order is the highest."""
    total = sum(len(run.keys) for run in runs)
    kind = runs[0].suffixes.dtype
    keys = storage.empty(total, np.uint64)
    suffixes, counts = storage.empty(total, kind), storage.empty(total, kind)
    at = [0] * len(runs)
    written = 0
    share = max(piece // len(runs), 1)
    while any(place < len(run.keys) for place, run in zip(at, runs, strict=True)):
        open_runs = [(place, run) for place, run in zip(at, runs, strict=True) if place < len(run.keys)]
        # No run has more than its share of keys up to the bound, and one of them has as many.
        bound = min(run.keys[min(place + share, len(run.keys)) - 1] for place, run in open_runs)
        ends = [
            place + int(np.searchsorted(run.keys[place : place + share], bound, side="right"))
            for run, place in zip(runs, at, strict=True)
        ]
        slices = [(run, slice(first, last)) for run, first, last in zip(runs, at, ends, strict=True)]
        merged = np.concatenate([run.keys[part] for run, part in slices])
        suffix = np.concatenate([run.suffixes[part] for run, part in slices])
        count = np.concatenate([run.counts[part] for run, part in slices])
        numbers = np.empty(0 if highest else len(merged), dtype=kind)
        merged, order = sort_keys(merged, np.arange(len(merged), dtype=np.uint32), key_width)
        written = int(_append(merged, order, suffix, count, numbers, keys, suffixes, counts, written))
        for run, part in [] if highest else slices:
            size = part.stop - part.start
            run.numbers[part], numbers = numbers[:size], numbers[size:]
        at = ends
        storage.keep_within()
    return keys[:written], suffixes[:written], counts[:written]


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
