"""Search for the pruning threshold at which a model has the wanted size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

CLOSE_ENOUGH = 0.998  # fraction of the wanted size at which the search ends
FIRST_THRESHOLD, STEP = 1e-7, 8.0  # STEP: factor between thresholds until one is too low and one high enough
MIN_THRESHOLD = 1e-30  # the lowest one above 0 that is tried
MAX_STEPS = 60


class Sized(Protocol):
    """The n-grams that a threshold keeps."""

    @property
    def size(self) -> int:
        """Number of n-grams."""


S = TypeVar("S", bound=Sized)


def largest_within(size: int, at: Callable[[float], S]) -> tuple[float, S]:
    """Return the lowest threshold found that keeps at most `size` n-grams, and what it keeps.

    at: returns what a threshold keeps: the higher it is, the less. 1-grams, at most `size` of them, always stay.
    """
    best = at(0.0)
    if best.size <= size:
        return 0.0, best
    low, low_size = 0.0, best.size
    high, found = FIRST_THRESHOLD, at(FIRST_THRESHOLD)
    while found.size > size:
        low, low_size = high, found.size
        high *= STEP
        found = at(high)
    while low == 0.0:  # 0 has no logarithm
        lower = high / STEP
        if lower < MIN_THRESHOLD:
            return high, found
        below = at(lower)
        if below.size > size:
            low, low_size = lower, below.size
        else:
            high, found = lower, below
    for step in range(MAX_STEPS):
        if found.size >= CLOSE_ENOUGH * size or high / low < 1 + 1e-9:
            break
        share = math.log(low_size / size) / math.log(low_size / found.size)
        # False position in logarithms; every third step is half-way, since one end may stay for long.
        share = min(max(share, 0.02), 0.98) if step % 3 < 2 else 0.5
        middle = low * (high / low) ** share
        between = at(middle)
        if between.size > size:
            low, low_size = middle, between.size
        else:
            high, found = middle, between
    return high, found
