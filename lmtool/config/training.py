"""conf/optim and conf/training: what each option has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require, require_whole, size_in_bytes
from lmtool.errors import UserError


@dataclass(slots=True)
class OptimConfig:
    """What every optimiser has."""

    kind: str = MISSING
    lr: float = MISSING
    weight_decay: float = MISSING

    def __post_init__(self) -> None:
        require(0 < self.lr < math.inf, "optim.lr", self.lr, "more than 0")
        require(0 <= self.weight_decay < math.inf, "optim.weight_decay", self.weight_decay, "0 or more")


@dataclass(slots=True)
class SgdOptim(OptimConfig):
    """Stochastic gradient descent."""

    momentum: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 <= self.momentum < 1, "optim.momentum", self.momentum, "from 0 to below 1")


@dataclass(slots=True)
class AdagradOptim(OptimConfig):
    """Adagrad (Duchi et al. 2011)."""

    eps: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 < self.eps < math.inf, "optim.eps", self.eps, "more than 0")


@dataclass(slots=True)
class AdamOptim(OptimConfig):
    """Adam (Kingma & Ba 2015), weight decay being part of the gradient."""

    beta1: float = MISSING
    beta2: float = MISSING
    eps: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "from 0 to below 1")
        require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "from 0 to below 1")
        require(0 < self.eps < math.inf, "optim.eps", self.eps, "more than 0")


@dataclass(slots=True)
class AdamwOptim(AdamOptim):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""


class Arithmetic(Enum):
    """The precision of the encoder's products in training."""

    fp32 = "fp32"
    bf16 = "bf16"


@dataclass(slots=True)
class TrainingConfig:
    """The budget and the pace of neural training."""

    epochs: float | None = MISSING
    steps: int | None = MISSING
    minutes: float | None = MISSING
    patience: int | None = MISSING
    batch_size: int = MISSING
    evaluate_every: float = MISSING
    accuracy_on: int = MISSING
    clip_norm: float | None = MISSING
    max_norm: float | None = MISSING
    precision: Arithmetic = MISSING
    compile: bool = MISSING
    memory: str | None = MISSING
    save_every: float = MISSING
    tensorboard: bool = MISSING

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None and self.minutes is None:
            raise UserError(
                "training.epochs, training.steps and training.minutes are all null: give one of them a value"
            )
        for name in ("epochs", "minutes", "clip_norm", "max_norm"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"training.{name}", value, "more than 0, or null")
        for name in ("steps", "patience"):
            require_whole(f"training.{name}", getattr(self, name), null=True)
        require_whole("training.batch_size", self.batch_size)
        require(0 < self.evaluate_every < math.inf, "training.evaluate_every", self.evaluate_every, "more than 0")
        require_whole("training.accuracy_on", self.accuracy_on, 0)
        require(0 <= self.save_every < math.inf, "training.save_every", self.save_every, "0 or more")
        if self.memory is not None:
            size_in_bytes(self.memory, "training.memory")
