"""The table of the alias method (Walker 1977), built in linear time (Vose 1991): each draw takes constant time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit


def alias_table(scaled: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return thresholds and aliases, `[W]` each, of probabilities `[W]` scaled to a mean of 1.

    A draw takes one of the W outcomes, w, uniformly, and returns w with probability thresholds[w], else aliases[w].
    """
    thresholds, aliases = scaled.copy(), np.empty(len(scaled), dtype=np.int64)
    _fill(thresholds, aliases)
    return thresholds, aliases


@njit(cache=True, nogil=True)
def _fill(scaled: Any, alias: Any) -> None:
    """Turn `scaled` `[W]`, of mean 1, into thresholds in place; what a place lacks to 1 goes to its alias.

    Two stacks, of places below 1 and of others: each step fills one place for good, so W steps suffice. The plain form
    looks for the smallest and the largest place in each step, W^2 in all.
    """
    size = len(scaled)
    low, high = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    lows = highs = 0
    for word in range(size):
        alias[word] = word
        if scaled[word] < 1:
            low[lows] = word
            lows += 1
        else:
            high[highs] = word
            highs += 1
    while lows and highs:
        small, large = low[lows - 1], high[highs - 1]
        lows -= 1
        alias[small] = large
        scaled[large] -= 1 - scaled[small]
        if scaled[large] < 1:
            highs -= 1
            low[lows] = large
            lows += 1
    # What remains differs from 1 by rounding alone.
    for k in range(lows):
        scaled[low[k]] = 1.0
    for k in range(highs):
        scaled[high[k]] = 1.0


@njit(cache=True, nogil=True)
def _draw(bits: Any, threshold: Any, alias: Any, outcomes: Any) -> None:
    """Draw an outcome for each of 63 random bits: the place from the upper 32, the height from the lower 31.

    Integers alone: a multiplication and a shift instead of a division for the place, and the same draws on every
    machine. tests/neural/test_outputs.py compares `AliasTable.drawn` with the probabilities.
    """
    size = np.int64(len(threshold))
    for k in range(len(bits)):
        place = ((bits[k] >> 31) * size) >> 32
        outcomes[k] = place if bits[k] & 0x7FFFFFFF < threshold[place] else alias[place]


class AliasTable:
    """A distribution over W outcomes, sampled by integer arithmetic.

    drawn: `[W]`, uint64, the number of the 2^63 values of the random bits that give each outcome: its exact
    probability. Its relative difference from the requested one is up to W / 2^32, as a place has a whole number of the
    2^32 upper values; the absolute one is about 2^-31 / W, as a threshold is one of 2^31 heights.
    """

    def __init__(self, probability: npt.NDArray[np.float64]) -> None:
        """probability: `[W]`, each 0 or more, with a positive sum, which need not be 1; W less than 2^31."""
        if not (probability >= 0).all() or not 0 < probability.sum() < np.inf:
            raise ValueError("probabilities must be finite, 0 or more, and not all 0")
        size = len(probability)
        heights, self._alias = alias_table(probability * (size / probability.sum()))
        self._threshold = np.ceil(heights * (1 << 31)).astype(np.int64)  # number of heights below the threshold
        first = -((np.arange(size + 1) << 32) // -size)  # the first of the upper numbers for each place
        each, own = np.diff(first).astype(np.uint64), self._threshold.astype(np.uint64)
        self.drawn = each * own
        np.add.at(self.drawn, self._alias, each * ((1 << 31) - own))

    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the number of heights below each threshold `[W]`, of 2^31, and the aliases `[W]`."""
        return self._threshold, self._alias

    def outcomes(self, bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the outcomes `[N]` that random bits `[N]`, from 0 to 2^63 - 1, give."""
        outcomes = np.empty_like(bits)
        _draw(bits, self._threshold, self._alias, outcomes)
        return outcomes
