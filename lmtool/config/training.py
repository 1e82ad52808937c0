"""conf/optim and conf/training: what each option has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require
from lmtool.errors import UserError


@dataclass(slots=True)
class OptimConfig:
    """What every optimiser has."""

    kind: str = MISSING
    lr: float = MISSING

    def __post_init__(self) -> None:
        require(self.lr > 0 and math.isfinite(self.lr), "optim.lr", self.lr, "more than 0")


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
        require(self.eps > 0, "optim.eps", self.eps, "more than 0")


@dataclass(slots=True)
class AdamOptim(OptimConfig):
    """Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019)."""

    beta1: float = MISSING
    beta2: float = MISSING
    eps: float = MISSING
    weight_decay: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "from 0 to below 1")
        require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "from 0 to below 1")
        require(self.eps > 0, "optim.eps", self.eps, "more than 0")
        require(self.weight_decay >= 0, "optim.weight_decay", self.weight_decay, "0 or more")


class Schedule(Enum):
    """How the learning rate moves over the budget, after the warm-up."""

    constant = "constant"
    linear = "linear"
    cosine = "cosine"


@dataclass(slots=True)
class TrainingConfig:
    """The budget and the pace of neural training."""

    epochs: int | None = MISSING
    minutes: float | None = MISSING
    batch_size: int = MISSING
    evaluate_every: float = MISSING
    clip_norm: float | None = MISSING
    schedule: Schedule = MISSING
    warmup: float = MISSING

    def __post_init__(self) -> None:
        if self.epochs is None and self.minutes is None:
            raise UserError("training.epochs and training.minutes are both null: give one of them a value")
        require(self.epochs is None or self.epochs >= 1, "training.epochs", self.epochs, "1 or more, or null")
        require(self.minutes is None or self.minutes > 0, "training.minutes", self.minutes, "more than 0, or null")
        require(self.batch_size >= 1, "training.batch_size", self.batch_size, "1 or more")
        require(self.evaluate_every > 0, "training.evaluate_every", self.evaluate_every, "more than 0")
        require(
            self.clip_norm is None or self.clip_norm > 0,
            "training.clip_norm",
            self.clip_norm,
            "more than 0, or null",
        )
        require(0 <= self.warmup < 1, "training.warmup", self.warmup, "from 0 to below 1")
