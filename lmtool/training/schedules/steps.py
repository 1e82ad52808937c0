r"""The learning rate is multiplied by a factor after given numbers of steps.

.. math::

    \eta_t = \eta\;\text{factor}^{|\{s \in \text{at}:\,s \le t\}|}

Source: torch's MultiStepLR has the same rule; He, Zhang, Ren & Sun (2016), CVPR, divide their rate so.
Complexity: O(1) for each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import ScheduleConfig
from lmtool.config.rules import MISSING, require, require_whole
from lmtool.errors import UserError


@dataclass(slots=True)
class StepsSchedule(ScheduleConfig):
    """at: numbers of steps, ascending. factor: by which the rate is multiplied at each of them."""

    at: list[int] = MISSING
    factor: float = MISSING

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        rising = bool(self.at) and self.at[0] >= 1 and all(a < b for a, b in zip(self.at, self.at[1:], strict=False))
        require(rising, "schedule.at", self.at, "numbers of steps, 1 or more each, rising, as [10000]")
        require_whole("schedule.at", self.at[-1])
        require(0 < self.factor <= 1, "schedule.factor", self.factor, "above 0 and at most 1")

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """peak factor^k after k of the numbers of steps."""
        factor: float = self.factor ** sum(at <= steps for at in self.at)
        return peak * factor

    def require_steps(self, steps: int, budget: str) -> None:
        """Raise UserError where the budget of `steps` steps ends before the last of the numbers."""
        if self.at[-1] >= steps:
            remedy = "leave the last ones out or train for more steps"
            raise UserError(f"schedule.at={self.at}: the budget ends before, {budget}; {remedy}")
