"""The learning rate falls as 1 / (1 + decay t) after t steps (Bengio et al. 2003, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lmtool.config.groups import ScheduleConfig
from lmtool.config.rules import MISSING, require


@dataclass(slots=True)
class InverseSchedule(ScheduleConfig):
    """decay: per step; the rate is half its peak after 1 / decay steps."""

    decay: float = MISSING

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        require(0 < self.decay < math.inf, "schedule.decay", self.decay, "more than 0")

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """peak / (1 + decay steps)."""
        return peak / (1 + self.decay * steps)
