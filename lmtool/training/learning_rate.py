"""How much of the budget is used up, and the learning rate of the next step."""

from __future__ import annotations

from lmtool.config.groups import ScheduleConfig
from lmtool.config.training import TrainingConfig

LOWEST_WARMUP = 0.01  # share of the peak: at 0 the first step of a long budget would be lost


def budget_done(training: TrainingConfig, *, epochs: float, steps: int, seconds: float) -> float:
    """The share of the budget that is used up, 1 at its end: by epochs, steps or minutes, whichever is furthest."""
    shares = [0.0]
    if training.epochs is not None:
        shares.append(epochs / training.epochs)
    if training.steps is not None:
        shares.append(steps / training.steps)
    if training.minutes is not None:
        shares.append(seconds / 60 / training.minutes)
    return max(shares)


def learning_rate(schedule: ScheduleConfig, peak: float, *, done: float, steps: int, drops: int = 0) -> float:
    """The learning rate of the next step: linearly up to `peak` in the warm-up, then what the schedule says.

    done: the share of the budget that is used up. steps: made so far. drops: how often the schedule's lowers_after has
    been true.
    """
    if done < schedule.warmup:
        return peak * max(done / schedule.warmup, LOWEST_WARMUP)
    left = (1 - done) / (1 - schedule.warmup)
    return schedule.rate(peak, left=left, steps=steps, drops=drops)
