"""Radix sort of 64-bit keys with the position of each, on several threads.

n-grams are sorted once an order, and the keys use far fewer than 64 bits: a sort that looks at each used bit once is
several times faster than one that compares. Stable, so that equal keys keep the order of the text.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.system.parallel import cut_evenly, run

Array = npt.NDArray[Any]
DIGIT = 11  # bits that one pass looks at, at most: its 2,048 counters and places stay in the nearest cache


@numba.njit(cache=True, nogil=True)
def _histogram(keys: Any, shift: int, bits: int, counts: Any) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(len(keys)):
        counts[(keys[i] >> np.uint64(shift)) & mask] += 1


@numba.njit(cache=True, nogil=True)
def _scatter(keys: Any, where: Any, shift: int, bits: int, places: Any, keys_out: Any, where_out: Any) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(len(keys)):
        digit = (keys[i] >> np.uint64(shift)) & mask
        place = places[digit]
        places[digit] = place + 1
        keys_out[place] = keys[i]
        where_out[place] = where[i]


def sort_keys(keys: Array, where: Array, bits: int) -> tuple[Array, Array]:
    """Sort uint64 `keys` `[N]` of at most that many bits, `where` `[N]` going along.

    Both arrays are overwritten; what is returned may be them or two others.
    """
    passes = -(-bits // DIGIT)
    digit = -(-bits // max(passes, 1))
    keys_out, where_out = np.empty_like(keys), np.empty_like(where)
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
                (_scatter, keys[a:b], where[a:b], shift, digit, places[t], keys_out, where_out)
                for t, (a, b) in enumerate(cuts)
            ],
        )
        keys, keys_out, where, where_out = keys_out, keys, where_out, where
    return keys, where
