"""The threshold of a pruning at which a model has the size that is wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

CLOSE = 0.998  # of the size that is wanted: near enough
FIRST, STEP = 1e-7, 8.0  # a first threshold, and the factor of the next until one is too low and one high enough
LEAST = 1e-30  # the lowest threshold above 0 that is tried
MOST_STEPS = 60


class Sized(Protocol):
    """What a threshold leaves."""

    @property
    def size(self) -> int:
        """The number of n-grams."""


S = TypeVar("S", bound=Sized)


def largest_within(size: int, at: Callable[[float], S]) -> tuple[float, S]:
    """The lowest threshold found whose model has at most `size` n-grams, and what it leaves.

    at: what a threshold leaves, less the higher it is; 1-grams, of which there are at most `size`, always stay.
    """
    best = at(0.0)
    if best.size <= size:
        return 0.0, best
    low, low_size = 0.0, best.size
    high, found = FIRST, at(FIRST)
    while found.size > size:
        low, low_size = high, found.size
        high *= STEP
        found = at(high)
    while low == 0.0:  # 0 has no logarithm
        lower = high / STEP
        if lower < LEAST:
            return high, found
        below = at(lower)
        if below.size > size:
            low, low_size = lower, below.size
        else:
            high, found = lower, below
    for step in range(MOST_STEPS):
        if found.size >= CLOSE * size or high / low < 1 + 1e-9:
            break
        share = math.log(low_size / size) / math.log(low_size / found.size)
        # False position in logarithms; now and then half-way, as one end may stay for long.
        share = min(max(share, 0.02), 0.98) if step % 3 < 2 else 0.5
        middle = low * (high / low) ** share
        between = at(middle)
        if between.size > size:
            low, low_size = middle, between.size
        else:
            high, found = middle, between
    return high, found
