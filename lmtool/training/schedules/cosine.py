r"""The learning rate falls to 0 along half a cosine over the budget.

.. math::

    \eta_t = \eta\,\frac{1 + \cos(\pi x)}{2}

x is the share of the budget after the warm-up that is used up, from 0 to 1.

Source: Loshchilov & Hutter (2017), "SGDR: stochastic gradient descent with warm restarts", ICLR, eq. 5, one cycle.
Complexity: O(1) for each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lmtool.config.groups import ScheduleConfig


@dataclass(slots=True)
class CosineSchedule(ScheduleConfig):
    """No settings but the warm-up."""

    follows_budget: ClassVar[bool] = True

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """peak (1 - cos(pi left)) / 2, with the share of the budget that is left."""
        return peak * 0.5 * (1 - math.cos(math.pi * min(max(left, 0.0), 1.0)))
