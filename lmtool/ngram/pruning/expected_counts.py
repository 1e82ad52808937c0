"""Expected counts by the enhanced Good-Turing method (Church & Gale 1991, sec. 2): how often what was seen r times
comes again in as much new text.

Good & Turing's r* = (r + 1) n_{r+1} / n_r is one number for all n-grams that were seen r times. But of those seen once,
one that the shorter context expects comes again far more often than one that it does not. So n_r is counted in bins
of the number of times that the shorter context expects the n-gram,

    e(hw) = a(h.) p(w|h'),     r*(bin) = (r + 1) n_{r+1}(bin) / n_r(bin)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import FloatArray, IntArray

LARGEST = 4  # r that have bins; from larger ones as much is subtracted as from this one
LOWEST, BINS = -32, 48  # bins are powers of two of e, from 2^-32 to 2^15 and beyond
SHRINK = 20.0  # n-grams of the average ratio that each bin is taken to have beside its own
MOST = 1.5  # that is subtracted where few n-grams say otherwise


def bins_of(expected: FloatArray) -> IntArray:
    """The bin of each e, int64 `[N]`."""
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(expected))
    bins: IntArray = np.clip(exponents, LOWEST, LOWEST + BINS - 1).astype(np.int64) - LOWEST
    return bins


def histogram(r: IntArray, bins: IntArray | None) -> IntArray:
    """n_0 to n_{LARGEST + 1} in each bin, int64 `[LARGEST + 2, BINS]`; all in the first bin where bins is None."""
    r = np.minimum(r, LARGEST + 2)
    cells = r * BINS + (bins if bins is not None else 0)
    counted: npt.NDArray[Any] = np.bincount(cells, minlength=(LARGEST + 3) * BINS)
    return counted.reshape(LARGEST + 3, BINS)[:-1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class ExpectedCounts:
    """star: r* of r = 0 to LARGEST in each bin, float64 `[LARGEST + 1, BINS]`; more: subtracted from larger r."""

    star: FloatArray
    more: float

    @classmethod
    def of(cls, n: IntArray) -> ExpectedCounts:
        """From the counts of counts in bins, `histogram`'s sum over all n-grams."""
        total = n.sum(axis=1)
        star = np.zeros((LARGEST + 1, n.shape[1]))
        average = np.zeros(LARGEST + 1)
        for r in range(1, LARGEST + 1):
            ratio = total[r + 1] / max(total[r], 1)
            within = (n[r + 1] + ratio * SHRINK) / (n[r] + SHRINK)
            average[r] = np.clip((r + 1) * ratio, r - MOST, r)
            star[r] = np.clip((r + 1) * within, max(r - MOST, 0.0), r)
        return cls(star, LARGEST - max(average[LARGEST], 0.0))

    def expected(self, r: IntArray, bins: IntArray | None) -> FloatArray:
        """r* of counts r `[N]` in their bins `[N]`, float64 `[N]`; bins None: as `histogram` has it."""
        low = self.star[np.minimum(r, LARGEST), bins if bins is not None else 0]
        return np.where(r <= LARGEST, low, r - self.more)
