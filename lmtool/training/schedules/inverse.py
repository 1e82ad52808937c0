r"""The learning rate falls as one over the number of steps.

.. math::

    \eta_t = \frac{\eta}{1 + \text{decay}\;t}

It is half its peak after 1 / decay steps.

Source: Bengio, Ducharme, Vincent & Jauvin (2003), "A neural probabilistic language model", JMLR 3, section 3.1.
Complexity: O(1) for each step.
"""

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
