"""The plan of a training, its progress, its outcome; the used share of the budget and the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from lmtool.config.groups import OptimConfig, ScheduleConfig
from lmtool.config.training import TrainingConfig

MIN_WARMUP = 0.01  # share of the peak rate: at 0 the first step of a long budget would have no effect


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a training. about: plain values that identify the model and the data; checkpoints keep them, and
    resuming compares them.
    """

    training: TrainingConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    seed: int
    about: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """The outcome of a training; its fields are those of results.TrainedRun.

    cloze: results of the questions, if there are any. training_seconds: duration without evaluations. precision: bf16
    if some of the products were in bf16, else fp32. forms: names of the fast forms that were used.
    """

    valid_perplexity: float
    train_perplexity: float
    cloze: dict[str, float] | None
    parameters: int
    steps: int
    examples: int
    examples_per_second: float
    epochs: float
    training_seconds: float
    precision: str
    forms: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Progress:
    """The state of a training.

    since: steps since the last evaluation, whose losses sum to loss_sum, in nats.
    clock: seconds of training without evaluations.
    best: the lowest loss on what training.keep_best names.
    waited: number of evaluations since the best one.
    drops: number of times that the schedule has lowered the rate.
    rate: learning rate of the last step.
    losses: this loss at each evaluation; evaluated: epochs before the last one.
    earlier_steps, earlier_epochs, earlier_examples: those before the last change of the batch size.
    """

    step: int = 0
    since: int = 0
    loss_sum: float = 0.0
    clock: float = 0.0
    best: float = math.inf
    waited: int = 0
    drops: int = 0
    rate: float = 0.0
    losses: list[float] = field(default_factory=list)
    evaluated: float = 0.0
    earlier_steps: int = 0
    earlier_epochs: float = 0.0
    earlier_examples: int = 0


def budget_done(training: TrainingConfig, *, epochs: float, steps: int, seconds: float) -> float:
    """Return the used share of the budget, 1 at its end: by epochs, steps or minutes, whichever is furthest."""
    budget = (epochs, training.epochs), (steps, training.steps), (seconds / 60, training.minutes)
    return max((used / limit for used, limit in budget if limit is not None), default=0.0)


def learning_rate(schedule: ScheduleConfig, peak: float, *, done: float, steps: int, drops: int = 0) -> float:
    """Return the learning rate of the next step: it rises linearly to `peak` in the warm-up, then follows the schedule.

    done: used share of the budget. steps: number of steps so far. drops: how often lowers_after has been true.
    """
    if done < schedule.warmup:
        return peak * max(done / schedule.warmup, MIN_WARMUP)
    left = (1 - done) / (1 - schedule.warmup)
    return schedule.rate(peak, left=left, steps=steps, drops=drops)
