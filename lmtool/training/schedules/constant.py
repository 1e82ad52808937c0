"""The learning rate stays at its peak."""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import ScheduleConfig


@dataclass(slots=True)
class ConstantSchedule(ScheduleConfig):
    """No settings but the warm-up."""

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """The peak."""
        return peak
