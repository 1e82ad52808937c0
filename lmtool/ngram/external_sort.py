"""Sorting n-grams that do not fit into memory: sorted runs on disk, which are merged range by range.

A run is what lmtool.ngram.sorting makes of a piece of the text. All keys up to a bound, as many as fit into memory, are
taken from each run and sorted together, then those up to the next bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.sorting import NO_NGRAM, count_keys, keys_of, sort_keys
from lmtool.ngram.storage import Storage

Array = npt.NDArray[Any]
BYTES_PER_KEY = 96  # in a run: key and position, the sort's copy of both, distinct keys, and pages of files


@dataclass(frozen=True, slots=True)
class Run:
    """The distinct n-grams that end at positions `first` to before `last`: ascending keys, suffixes, counts, `[U]`."""

    first: int
    last: int
    keys: Array
    suffixes: Array
    counts: Array


def sort_in_runs(
    words: Array, row: Array, bos: int, word_width: int, key_width: int, highest: bool, storage: Storage, memory: int
) -> tuple[Array, Array, Array, Array]:
    """The same as sorting.sort_in_memory, in about `memory` bytes; large arrays lie in files of `storage`.

    Raises UserError where the disk is full.
    """
    piece = max(memory // BYTES_PER_KEY, 1024)
    next_row = storage.empty(0 if highest else len(words), np.uint32)
    runs: list[Run] = []
    for first in range(0, len(words), piece):
        last = min(first + piece, len(words))
        next_row[first:last] = NO_NGRAM
        keys, positions = keys_of(words, row, bos, word_width, first, last)
        keys, positions = sort_keys(keys, positions, key_width)
        distinct = count_keys(keys, positions, row, next_row)  # next_row now counts within the run
        runs.append(Run(first, last, *(_stored(part, storage) for part in distinct)))
        del keys, positions, distinct
        storage.release()
    keys, suffixes, counts = _merge(runs, key_width, piece, storage)
    for part in [] if highest else runs:
        places = np.empty(len(part.keys), dtype=np.uint32)
        _places(part.keys, keys, places)
        _renumber(next_row[part.first : part.last], places, int(NO_NGRAM))
        storage.release()
    return keys, suffixes, counts, next_row


def _stored(values: Array, storage: Storage) -> Array:
    stored = storage.empty(len(values), values.dtype)
    stored[:] = values
    return stored


def _merge(runs: list[Run], key_width: int, piece: int, storage: Storage) -> tuple[Array, Array, Array]:
    """The runs as one: keys, suffixes, counts."""
    total = sum(len(run.keys) for run in runs)
    keys = storage.empty(total, np.uint64)
    suffixes, counts = storage.empty(total, np.uint32), storage.empty(total, np.uint32)
    at = [0] * len(runs)
    written = 0
    share = max(piece // len(runs), 1)
    while any(place < len(run.keys) for place, run in zip(at, runs, strict=True)):
        open_runs = [(place, run) for place, run in zip(at, runs, strict=True) if place < len(run.keys)]
        # No run has more than its share of keys up to the bound, and one of them has as many.
        bound = min(run.keys[min(place + share, len(run.keys)) - 1] for place, run in open_runs)
        ends = [int(np.searchsorted(run.keys, bound, side="right")) for run in runs]
        slices = [(run, slice(first, last)) for run, first, last in zip(runs, at, ends, strict=True)]
        merged = np.concatenate([run.keys[part] for run, part in slices])
        suffix = np.concatenate([run.suffixes[part] for run, part in slices])
        count = np.concatenate([run.counts[part] for run, part in slices])
        merged, order = sort_keys(merged, np.arange(len(merged), dtype=np.uint32), key_width)
        written = int(_append(merged, order, suffix, count, keys, suffixes, counts, written))
        at = ends
        storage.release()
    return keys[:written], suffixes[:written], counts[:written]


@numba.njit(cache=True, nogil=True)
def _append(
    merged: Any, order: Any, suffix: Any, count: Any, keys: Any, suffixes: Any, counts: Any, written: int
) -> Any:
    for i in range(len(merged)):
        if i == 0 or merged[i] != merged[i - 1]:
            keys[written] = merged[i]
            suffixes[written] = suffix[order[i]]
            counts[written] = 0
            written += 1
        counts[written - 1] += count[order[i]]
    return written


@numba.njit(cache=True, nogil=True)
def _places(wanted: Any, keys: Any, places: Any) -> None:
    """The index of each of the wanted keys among all keys; both ascend."""
    at = 0
    for i in range(len(wanted)):
        while keys[at] != wanted[i]:
            at += 1
        places[i] = at


@numba.njit(cache=True, nogil=True)
def _renumber(row: Any, places: Any, none: int) -> None:
    for i in range(len(row)):
        if row[i] != none:
            row[i] = places[row[i]]
