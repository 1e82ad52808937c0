"""conf/schedule: how the learning rate moves, from optim.lr as its highest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from omegaconf import MISSING

from lmtool.config.rules import require, require_whole


@dataclass(slots=True)
class ScheduleConfig:
    """What every schedule has."""

    kind: str = MISSING
    warmup: float = MISSING

    def __post_init__(self) -> None:
        require(0 <= self.warmup < 1, "schedule.warmup", self.warmup, "from 0 to below 1")


@dataclass(slots=True)
class ConstantSchedule(ScheduleConfig):
    """Always the same."""


@dataclass(slots=True)
class LinearSchedule(ScheduleConfig):
    """Down to nothing in a straight line."""


@dataclass(slots=True)
class CosineSchedule(ScheduleConfig):
    """Down to nothing along half a cosine (Loshchilov & Hutter 2017)."""


@dataclass(slots=True)
class StepsSchedule(ScheduleConfig):
    """Times a factor after given steps."""

    at: list[int] = MISSING
    factor: float = MISSING

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        rising = bool(self.at) and self.at[0] >= 1 and all(a < b for a, b in zip(self.at, self.at[1:], strict=False))
        require(rising, "schedule.at", self.at, "numbers of steps, 1 or more each, rising, as [10000]")
        require_whole("schedule.at", self.at[-1])
        require(0 < self.factor <= 1, "schedule.factor", self.factor, "above 0 and at most 1")


@dataclass(slots=True)
class InverseSchedule(ScheduleConfig):
    """1 / (1 + decay t) after t steps (Bengio et al. 2003)."""

    decay: float = MISSING

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        require(0 < self.decay < math.inf, "schedule.decay", self.decay, "more than 0")


@dataclass(slots=True)
class PlateauSchedule(ScheduleConfig):
    """Times a factor after evaluations on valid that are no better."""

    factor: float = MISSING
    patience: int = MISSING

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        require(0 < self.factor < 1, "schedule.factor", self.factor, "above 0 and below 1")
        require_whole("schedule.patience", self.patience)
