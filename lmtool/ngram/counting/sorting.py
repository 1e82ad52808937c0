"""Sort keys with values."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.system.arrays import Array
from lmtool.system.parallel import cut_evenly, run

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
        places = digit_places(counts)
        run(
            (_scatter, keys[a:b], values[a:b], shift, digit, places[t], keys_out, values_out)
            for t, (a, b) in enumerate(cuts)
        )
        keys, keys_out, values, values_out = keys_out, keys, values_out, values
    return keys, values


def digit_places(counts: Array) -> Array:
    """Return the position of each thread's first key of each digit, by digit, then by thread: `[threads, digits]`."""
    return (np.cumsum(counts.T) - counts.T.reshape(-1)).reshape(counts.T.shape).T.copy()


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
