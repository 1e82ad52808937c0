"""What a training is given, what changes in it, and its outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from lmtool.config.groups import OptimConfig, ScheduleConfig
from lmtool.config.training import TrainingConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. about: plain values that say what is trained on what; checkpoints keep it, and resuming compares
    it. loss_is_log_prob: whether the training loss is -log p, as that of the output layer's settings.
    """

    training: TrainingConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    seed: int
    about: dict[str, Any]
    loss_is_log_prob: bool = True


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a training, by the names of result.json.

    training_seconds: evaluations not counted. precision: bf16 where some of the products were in it, else fp32. forms:
    the names of the fast forms that computed some of it.
    """

    valid_perplexity: float
    parameters: int
    steps: int
    examples: int
    examples_per_second: float
    epochs: float
    training_seconds: float
    precision: str
    forms: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the values for result.json."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Progress:
    """The state of a training. since: steps since the last evaluation, whose losses sum to loss_sum, in nats. clock:
    seconds of training, evaluations not counted. best: the lowest loss on valid. waited: evaluations since the one that
    had it. drops: how often the schedule has lowered the rate. rate: of the last step.
    """

    step: int = 0
    since: int = 0
    loss_sum: float = 0.0
    clock: float = 0.0
    best: float = math.inf
    waited: int = 0
    drops: int = 0
    rate: float = 0.0
