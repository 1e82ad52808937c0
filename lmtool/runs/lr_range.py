"""What a learning-rate range test leaves in its folder."""

from __future__ import annotations

from dataclasses import dataclass

RATES = "lr_range.json"


@dataclass(frozen=True, slots=True)
class RangeTest:
    """lr_range.json. rates: those tried, ascending. losses: in nats at each, before its step. smoothed: their running
    mean. proposed: a tenth of the rate at which that mean is lowest, as many steps at a rate diverge where a single one
    does not.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    proposed: float
