"""The settings of neural training: budget, batches, evaluation, checkpoints; their values are in conf/training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lmtool.config.rules import MISSING, is_number, require, require_whole, size_in_bytes
from lmtool.errors import UserError

AUTO = "auto"
EPOCHS, MINUTES = 8.0, 10.0  # the budget where none is given


class Precision(Enum):
    """The precision of the large matrix products of a training step; auto is the faster one for their size."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"


class Gradients(Enum):
    """The gradients of embeddings and of the vectors of words and nodes: of the rows of a batch, or of all rows; auto
    is sparse on a CPU, and dense on a GPU whose memory has room for them.
    """

    auto = "auto"
    sparse = "sparse"
    dense = "dense"


class Forms(Enum):
    """Whether layers may be computed by their fast forms, or by the plain formulas alone."""

    auto = "auto"
    plain = "plain"


@dataclass(slots=True)
class TrainingConfig:
    """The budget of neural training, its batches, evaluations and checkpoints.

    epochs, minutes: numbers or None; AUTO becomes EPOCHS and, if neither epochs nor steps is given, MINUTES, else None.
    Raises UserError for values out of range, and where no budget is given.
    """

    epochs: Any = MISSING
    steps: int | None = MISSING
    minutes: Any = MISSING
    patience: int | None = MISSING
    batch_size: int = MISSING
    consecutive: int | None = 1
    evaluate_every: float = MISSING
    accuracy_on: int = MISSING
    clip_norm: float | None = MISSING
    max_norm: float | None = MISSING
    precision: Precision = MISSING
    compile: bool = MISSING
    gradients: Gradients = Gradients.auto
    forms: Forms = Forms.auto
    deterministic: bool = False
    memory: str | None = MISSING
    save_every: float = MISSING
    tensorboard: bool = MISSING

    def __post_init__(self) -> None:
        if self.minutes == AUTO:
            self.minutes = MINUTES if self.epochs in (AUTO, None) and self.steps is None else None
        if self.epochs == AUTO:
            self.epochs = EPOCHS
        if self.epochs is None and self.steps is None and self.minutes is None:
            raise UserError(
                "training.epochs, training.steps and training.minutes are all null: give one of them a value"
            )
        for name in ("epochs", "minutes"):
            value = getattr(self, name)
            fits = value is None or is_number(value, math.ulp(0), math.nextafter(math.inf, 0))
            require(fits, f"training.{name}", value, "a number above 0, null or auto")
            setattr(self, name, None if value is None else float(value))
        for name in ("clip_norm", "max_norm"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"training.{name}", value, "more than 0, or null")
        for name in ("steps", "patience"):
            require_whole(f"training.{name}", getattr(self, name), null=True)
        if self.forms is Forms.plain and self.precision is Precision.bf16:
            raise UserError("training.forms=plain computes in fp32: take training.precision=fp32 or auto")
        require_whole("training.batch_size", self.batch_size)
        require_whole("training.consecutive", self.consecutive, null=True)
        require(0 < self.evaluate_every < math.inf, "training.evaluate_every", self.evaluate_every, "more than 0")
        require_whole("training.accuracy_on", self.accuracy_on, 0)
        require(0 <= self.save_every < math.inf, "training.save_every", self.save_every, "0 or more")
        if self.memory is not None:
            size_in_bytes(self.memory, "training.memory")
