"""What optimisers share: parameters by whether weight decay applies to them, and the settings of both forms of Adam."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import OptimConfig
from lmtool.config.rules import MISSING, require

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ParameterGroups:
    """The parameters of one optimiser. matrices: those of two dimensions or more; vectors: biases and gains, which
    weight decay spares.
    """

    matrices: list[nn.Parameter]
    vectors: list[nn.Parameter]

    @classmethod
    def of(cls, parameters: Iterable[nn.Parameter]) -> ParameterGroups:
        """Sort parameters, in their order."""
        listed = list(parameters)
        return cls([p for p in listed if p.dim() > 1], [p for p in listed if p.dim() <= 1])

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All of them, in the order of the optimiser's groups."""
        return [*self.matrices, *self.vectors]

    def decayed(self, weight_decay: float, *, key: str = "weight_decay") -> list[dict[str, Any]]:
        """The parameter groups that a `torch.optim.Optimizer` takes, none of them empty.

        key: the name of the optimiser's argument, to which `weight_decay` is given for the matrices and 0 for the rest.
        """
        groups = [{"params": self.matrices, key: weight_decay}, {"params": self.vectors, key: 0.0}]
        return [group for group in groups if group["params"]]


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
