"""Learning-rate schedules: the options of the group `schedule`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lmtool.config.groups import ScheduleConfig
from lmtool.config.rules import require, setting
from lmtool.errors import UserError


@dataclass(slots=True)
class ConstantSchedule(ScheduleConfig):
    r"""The learning rate stays at its peak.

    .. math::

        \eta_t = \eta

    Source: none; the baseline of all others. Robbins & Monro (1951), "A stochastic approximation method", Annals of
        Mathematical Statistics 22, show why a rate has to fall.
    Complexity: O(1) for each step.
    """

    kind: str = "constant"

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        return peak


@dataclass(slots=True)
class LinearSchedule(ScheduleConfig):
    r"""The learning rate falls to 0 in a straight line over the budget.

    .. math::

        \eta_t = \eta\,(1 - x)

    x is the used share of the budget after the warm-up, from 0 to 1.

    Source: Goodfellow, Bengio & Courville (2016), "Deep learning", section 8.3.1, eq. 8.14.
    Complexity: O(1) for each step.
    """

    kind: str = "linear"

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        return peak * max(left, 0.0)


@dataclass(slots=True)
class CosineSchedule(ScheduleConfig):
    r"""The learning rate falls to 0 along half a cosine over the budget.

    .. math::

        \eta_t = \eta\,\frac{1 + \cos(\pi x)}{2}

    x is the used share of the budget after the warm-up, from 0 to 1.

    Source: Loshchilov & Hutter (2017), "SGDR: stochastic gradient descent with warm restarts", ICLR, eq. 5, one cycle.
    Complexity: O(1) for each step.
    """

    kind: str = "cosine"

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        return peak * 0.5 * (1 - math.cos(math.pi * min(max(left, 0.0), 1.0)))


@dataclass(slots=True)
class InverseSchedule(ScheduleConfig):
    r"""The learning rate falls as one over the number of steps.

    .. math::

        \eta_t = \frac{\eta}{1 + \text{decay}\;t}

    It is half its peak after 1 / decay steps, where `decay` is per step.

    Source: Bengio, Ducharme, Vincent & Jauvin (2003), "A neural probabilistic language model", JMLR 3, section 3.1.
    Complexity: O(1) for each step.
    """

    kind: str = "inverse"
    decay: float = setting(above=0)

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        return peak / (1 + self.decay * steps)


@dataclass(slots=True)
class PlateauSchedule(ScheduleConfig):
    r"""The learning rate is multiplied by a factor after evaluations on valid without an improvement.

    .. math::

        \eta_t = \eta\;\text{factor}^{k}

    k is the number of times that `patience` evaluations in a row have passed without one.

    Source: Mikolov (2012), "Statistical language models based on neural networks", whose rate is halved in this way;
        torch's ReduceLROnPlateau.
    Complexity: O(1) for each step.
    """

    kind: str = "plateau"
    factor: float = setting(above=0, below=1)
    patience: int = setting(min=1)

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        factor: float = self.factor**drops
        return peak * factor

    def lowers_after(self, waited: int) -> bool:
        return waited % self.patience == 0


@dataclass(slots=True)
class StepsSchedule(ScheduleConfig):
    r"""The learning rate is multiplied by a factor after given shares of the budget or numbers of steps.

    .. math::

        \eta_t = \eta\;\text{gamma}^{|\{s \in \text{milestones}:\,s \le t\}|}

    t is the number of steps; if the milestones are below 1, it is the used share of the budget, from 0 to 1.

    Source: torch's MultiStepLR has the same rule; He, Zhang, Ren & Sun (2016), CVPR, divide their rate in this way.
    Complexity: O(1) for each step.
    """

    kind: str = "steps"
    milestones: list[float] = setting(above=0)
    gamma: float = setting(above=0, max=1)

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        rule = "ascending: shares of the budget below 1, such as 0.5,0.75, or numbers of steps, such as 10000,20000"
        same_kind = self.milestones[-1] < 1 or all(m >= 1 and m % 1 == 0 for m in self.milestones)
        right = same_kind and self.milestones == sorted(set(self.milestones))
        require(right, "schedule.milestones", self.milestones, rule)
        if self.milestones[-1] >= 1:
            self.milestones = [int(m) for m in self.milestones]

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        done = 1 - left * (1 - self.warmup) if self.milestones[-1] < 1 else steps
        factor: float = self.gamma ** sum(milestone <= done for milestone in self.milestones)
        return peak * factor

    def require_steps(self, steps: int, budget: str) -> None:
        if self.milestones[-1] >= max(steps, 1):
            fitting = str([m for m in self.milestones if m < steps] or [0.5, 0.75]).replace(" ", "")
            remedy = f"remove the last ones or train for more steps, e.g. schedule.milestones={fitting}"
            raise UserError(f"schedule.milestones={self.milestones}: the budget ends earlier, {budget}: {remedy}")
