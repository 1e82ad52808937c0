"""Lion: each weight moves by the learning rate, in the direction of the sign of a running mean of its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from lmtool.config.groups import OptimConfig
from lmtool.config.rules import setting

if TYPE_CHECKING:
    from lmtool.neural.optimizers.base import ParameterGroups


class Lion(Optimizer):
    """Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2)."""

    def __init__(self, params, lr: float, betas: tuple[float, float], weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """Make one step."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad.to_dense()  # some layers have sparse gradients
                mean = self.state[w].setdefault("mean", torch.zeros_like(w))
                w.mul_(1 - group["lr"] * group["weight_decay"])
                w.sub_(mean.lerp(g, 1 - beta1).sign(), alpha=group["lr"])
                mean.lerp_(g, 1 - beta2)


@dataclass(slots=True)
class LionOptim(OptimConfig):
    """Lion; weight decay is decoupled, and spares biases and gains."""

    kind: str = "lion"
    beta1: float = setting(min=0, below=1)
    beta2: float = setting(min=0, below=1)

    def dense(self, groups: ParameterGroups) -> Optimizer:
        """Build the optimizer of parameters with dense gradients; groups are iterable, as those of torch are."""
        return Lion(groups, lr=self.lr, betas=(self.beta1, self.beta2), weight_decay=self.decay)

    def sparse(self, groups: ParameterGroups) -> Optimizer:
        """Build the same optimizer: it makes sparse gradients dense."""
        return self.dense(groups)
