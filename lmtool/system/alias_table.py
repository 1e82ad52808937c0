"""The alias method's table (Walker 1977), built in linear time by Vose's (1991) algorithm: a draw from W outcomes then
takes constant time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit


def alias_table(scaled: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Thresholds and aliases, `[W]` each, of probabilities `[W]` that are scaled to a mean of 1.

    A draw takes one of the W outcomes, w, uniformly, and returns w with probability thresholds[w], else aliases[w].
    """
    thresholds, aliases = scaled.copy(), np.empty(len(scaled), dtype=np.int64)
    _fill(thresholds, aliases)
    return thresholds, aliases


@njit(cache=True, nogil=True)
def _fill(scaled: Any, alias: Any) -> None:
    """Turn `scaled` `[W]`, of mean 1, into thresholds in place; what an outcome lacks to 1 comes from its alias."""
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
