r"""The learning rate stays at its peak.

.. math::

    \eta_t = \eta

Source: none; the baseline of the others. Robbins & Monro (1951), "A stochastic approximation method", Annals of
    Mathematical Statistics 22, show why a rate has to fall.
Complexity: O(1) for each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import ScheduleConfig


@dataclass(slots=True)
class ConstantSchedule(ScheduleConfig):
    """No settings but the warm-up."""

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """The peak."""
        return peak
