r"""The learning rate is multiplied by a factor after evaluations on valid without an improvement.

.. math::

    \eta_t = \eta\;\text{factor}^{k}

k is how often `patience` evaluations in a row have passed without one.

Source: Mikolov (2012), "Statistical language models based on neural networks", whose rate is halved so; torch's
    ReduceLROnPlateau.
Complexity: O(1) for each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import ScheduleConfig
from lmtool.config.rules import MISSING, require, require_whole


@dataclass(slots=True)
class PlateauSchedule(ScheduleConfig):
    """factor: by which the rate is multiplied. patience: the number of evaluations without an improvement until
    then.
    """

    factor: float = MISSING
    patience: int = MISSING

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        require(0 < self.factor < 1, "schedule.factor", self.factor, "above 0 and below 1")
        require_whole("schedule.patience", self.patience)

    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """peak factor^drops."""
        factor: float = self.factor**drops
        return peak * factor

    def lowers_after(self, waited: int) -> bool:
        """Whether `waited` is a multiple of the patience."""
        return waited % self.patience == 0
