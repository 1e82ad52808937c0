"""How much of the budget is used up, and the learning rate that goes with it."""

from __future__ import annotations

import math

from lmtool.config import (
    ConstantSchedule,
    CosineSchedule,
    InverseSchedule,
    LinearSchedule,
    PlateauSchedule,
    ScheduleConfig,
    StepsSchedule,
    TrainingConfig,
)
from lmtool.errors import UserError


def budget_done(training: TrainingConfig, *, epochs: float, steps: int, seconds: float) -> float:
    """The share of the budget that is used up: by epochs, steps or minutes, whichever is furthest."""
    shares = [0.0]
    if training.epochs is not None:
        shares.append(epochs / training.epochs)
    if training.steps is not None:
        shares.append(steps / training.steps)
    if training.minutes is not None:
        shares.append(seconds / 60 / training.minutes)
    return max(shares)


def learning_rate(schedule: ScheduleConfig, peak: float, *, done: float, steps: int, drops: int = 0) -> float:
    """The rate of the next step when the share `done` of the budget is used, `steps` are made and the plateau
    schedule has come down `drops` times: up to `peak` linearly, then by the schedule.
    """
    if done < schedule.warmup:
        # Never quite zero, or the first step of a long budget would be lost.
        return peak * max(done / schedule.warmup, 0.01)
    left = (1 - done) / (1 - schedule.warmup)
    match schedule:
        case ConstantSchedule():
            return peak
        case LinearSchedule():
            return peak * max(left, 0.0)
        case CosineSchedule():
            return peak * 0.5 * (1 - math.cos(math.pi * min(max(left, 0.0), 1.0)))
        case StepsSchedule():
            factor: float = schedule.factor ** sum(at <= steps for at in schedule.at)
            return peak * factor
        case InverseSchedule():
            return peak / (1 + schedule.decay * steps)
        case PlateauSchedule():
            lowered: float = schedule.factor**drops
            return peak * lowered
    raise UserError(f"schedule={schedule.kind} is not known to this version of lmtool")
