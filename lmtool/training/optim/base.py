"""What optimizers share: parameters by whether weight decay applies to them, and the settings of both forms of Adam."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import OptimConfig
from lmtool.config.rules import MISSING, require

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ParameterGroups:
    """The parameters of one optimizer, matrices first, as checkpoints number them. spared: ids of those that weight
    decay leaves alone.
    """

    parameters: list[nn.Parameter]
    spared: frozenset[int]

    @classmethod
    def of(cls, parameters: Iterable[nn.Parameter], model: nn.Module) -> ParameterGroups:
        """Sort parameters of a model by their role: weight decay spares biases and gains.

        A module of the model says which are which by a class attribute `decays`, names of its parameters and whether
        they are decayed; any other parameter is decayed if it has two dimensions or more.
        """
        spared = frozenset(
            id(parameter)
            for module in model.modules()
            for name, parameter in module.named_parameters(recurse=False)
            if not getattr(module, "decays", {}).get(name, parameter.dim() > 1)
        )
        return cls(sorted(parameters, key=lambda p: p.dim() <= 1), spared)

    def decayed(self, weight_decay: float, *, key: str = "weight_decay") -> list[dict[str, Any]]:
        """Return the parameter groups that a `torch.optim.Optimizer` takes, none of them empty.

        key: the name of the optimizer's argument, which is 0 for the spared parameters and `weight_decay` for the rest.
        """
        runs = groupby(self.parameters, key=lambda p: id(p) in self.spared)
        return [{"params": list(run), key: 0.0 if spared else weight_decay} for spared, run in runs]


@dataclass(slots=True)
class AdamSettings(OptimConfig):
    """The settings of Adam, whichever way its weight decay takes.

    beta1 and beta2: decay rates of the running means of the gradient and of its square. eps: added to the square root
    of the latter.
    """

    beta1: float = MISSING
    beta2: float = MISSING
    eps: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "from 0 to below 1")
        require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "from 0 to below 1")
        require(0 < self.eps < math.inf, "optim.eps", self.eps, "more than 0")

    def arguments(self) -> dict[str, Any]:
        """The arguments of `torch.optim.Adam` and its like, weight decay aside."""
        return {"lr": self.lr, "betas": (self.beta1, self.beta2), "eps": self.eps}
