r"""The learning rate falls to 0 in a straight line over the budget.

.. math::

    \eta_t = \eta\,(1 - x)

x is the share of the budget after the warm-up that is used up, from 0 to 1.

Source: Goodfellow, Bengio & Courville (2016), "Deep learning", section 8.3.1, eq. 8.14.
Complexity: O(1) for each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lmtool.config.groups import ScheduleConfig


@dataclass(slots=True)
class LinearSchedule(ScheduleConfig):
    """No settings but the warm-up."""

    follows_budget: ClassVar[bool] = True

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """peak left, with the share of the budget that is left."""
        return peak * max(left, 0.0)
