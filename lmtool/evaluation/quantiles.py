"""Exact quantiles of more numbers than the memory holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import FloatArray

Keys = npt.NDArray[np.uint64]
DIGIT = 16  # bits that are decided in one pass
SIGN = np.uint64(1 << 63)


def quantiles(parts: Callable[[], Iterator[FloatArray]], shares: list[float]) -> list[float]:
    """For each share the smallest of the numbers that at least this share of them are no larger than.

    parts: the numbers, some at a time, each time it is called; nan among them are left out. There are four passes over
    them for each share. Empty without numbers.
    """
    count = sum(int((~np.isnan(part)).sum()) for part in parts())
    if not count:
        return []
    return [_ranked(parts, max(math.ceil(share * count * (1 - 1e-12)), 1)) for share in shares]


def _ranked(parts: Callable[[], Iterator[FloatArray]], rank: int) -> float:
    """The number of a rank, from 1: digit by digit, the highest first, by the counts of each."""
    prefix = 0
    for shift in range(64 - DIGIT, -1, -DIGIT):
        counts = np.zeros(1 << DIGIT, dtype=np.int64)
        for part in parts():
            keys = _ordered(part[~np.isnan(part)])
            if shift < 64 - DIGIT:
                keys = keys[keys >> np.uint64(shift + DIGIT) == prefix]
            digits = (keys >> np.uint64(shift)) & np.uint64((1 << DIGIT) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << DIGIT)
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, rank))
        rank -= int(below[digit] - counts[digit])
        prefix = prefix << DIGIT | digit
    key = np.array([prefix], dtype=np.uint64)
    return float(np.where(key & SIGN, key ^ SIGN, ~key).view(np.float64)[0])


def _ordered(values: FloatArray) -> Keys:
    """Whole numbers in the order of the values: the bits of the positive ones, those of the negative ones inverted."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)
