"""Sorting n-grams that do not fit into memory: runs on disk, merged range by range.

As `counts`, with what is large in files: the keys of a piece of text are sorted and made distinct, which is a run; runs
are merged by taking from each of them all keys up to a bound, as many as fit, and sorting these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.sorting import sort_keys
from lmtool.ngram.storage import Storage

Array = npt.NDArray[Any]
BYTES_A_KEY = 96  # for one in a run: it and its place, both again, what becomes of them, and pages of files


@dataclass(frozen=True, slots=True)
class Run:
    """The distinct n-grams of places `first` to before `last`: keys that ascend, suffixes, counts."""

    first: int
    last: int
    keys: Array
    suffixes: Array
    counts: Array


def sort_in_runs(
    words: Array, row: Array, bos: int, word_width: int, key_width: int, highest: bool, storage: Storage
) -> tuple[Array, Array, Array, Array]:
    """As `counts._sort_at_once`, within the memory of `storage`."""
    from lmtool.ngram.counts import NONE, collapse, keys_of

    assert storage.memory is not None
    piece = max(storage.memory // BYTES_A_KEY, 1024)
    next_row = storage.empty(0 if highest else len(words), np.uint32)
    runs: list[Run] = []
    for first in range(0, len(words), piece):
        last = min(first + piece, len(words))
        next_row[first:last] = NONE
        keys, where = keys_of(words, row, bos, word_width, first, last)
        keys, where = sort_keys(keys, where, key_width)
        found = collapse(keys, where, row, next_row)  # next_row now counts within the run
        runs.append(Run(first, last, *(_stored(part, storage) for part in found)))
        del keys, where, found
        storage.release()
    keys, suffixes, counts = _merge(runs, key_width, piece, storage)
    for part in [] if highest else runs:
        places = np.empty(len(part.keys), dtype=np.uint32)
        _places(part.keys, keys, places)
        _renumber(next_row[part.first : part.last], places, int(NONE))
        storage.release()
    return keys, suffixes, counts, next_row


def _stored(values: Array, storage: Storage) -> Array:
    kept = storage.empty(len(values), values.dtype)
    kept[:] = values
    return kept


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
        taken = np.concatenate([run.keys[part] for run, part in slices])
        suffix = np.concatenate([run.suffixes[part] for run, part in slices])
        count = np.concatenate([run.counts[part] for run, part in slices])
        taken, order = sort_keys(taken, np.arange(len(taken), dtype=np.uint32), key_width)
        written = int(_append(taken, order, suffix, count, keys, suffixes, counts, written))
        at = ends
        storage.release()
    return keys[:written], suffixes[:written], counts[:written]


@numba.njit(cache=True, nogil=True)
def _append(
    taken: Any, order: Any, suffix: Any, count: Any, keys: Any, suffixes: Any, counts: Any, written: int
) -> Any:
    for i in range(len(taken)):
        if i == 0 or taken[i] != taken[i - 1]:
            keys[written] = taken[i]
            suffixes[written] = suffix[order[i]]
            counts[written] = 0
            written += 1
        counts[written - 1] += count[order[i]]
    return written


@numba.njit(cache=True, nogil=True)
def _places(wanted: Any, keys: Any, places: Any) -> None:
    """Where each of the wanted keys stands among all of them; both ascend."""
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
