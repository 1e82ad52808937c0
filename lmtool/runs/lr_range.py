"""What a learning-rate range test leaves in its folder."""

from __future__ import annotations

from dataclasses import dataclass

RATES = "lr_range.json"
START = 20  # steps whose smoothed losses are left out, as they are means of few


def start_of(rates: list[float]) -> int:
    """Return the first step whose smoothed loss counts: START, or half of the steps if that is less."""
    return min(START, len(rates) // 2)


@dataclass(frozen=True, slots=True)
class RangeTest:
    """lr_range.json. rates: those tried, ascending. losses: in nats at each, before its step. smoothed: their running
    mean. proposed: a tenth of the rate at which that mean is lowest, the first 20 steps left out, as many steps at a
    rate diverge where a single one does not; at least the lowest rate. doubt: why it is not to be relied on, or empty.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    proposed: float
    doubt: str = ""
