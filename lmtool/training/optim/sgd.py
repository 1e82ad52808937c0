r"""Stochastic gradient descent, with momentum if wanted.

.. math::

    u &\leftarrow \text{momentum}\;u + g + \text{decay}\;w \\
    w &\leftarrow w - \text{lr}\;u

g is the gradient by the weights w.

Source: Robbins & Monro (1951), "A stochastic approximation method", Annals of Mathematical Statistics 22; momentum:
    Polyak (1964), USSR Computational Mathematics and Mathematical Physics 4.
Complexity: one more number for each weight with momentum, none without; for sparse gradients a step works on the rows
    with one alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lmtool.config.groups import OptimConfig
from lmtool.config.rules import MISSING, require
from lmtool.neural.optimizers.rows import RowSGD
from lmtool.training.optim.base import ParameterGroups


@dataclass(slots=True)
class SgdOptim(OptimConfig):
    """momentum: of the steps; 0 for plain gradient descent."""

    momentum: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 <= self.momentum < 1, "optim.momentum", self.momentum, "from 0 to below 1")

    def dense(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """torch's SGD, its step fused; with momentum on a GPU, each of its operations over all parameters together."""
        of_torch = groups.decayed(self.decay)
        if self.momentum and not all(parameter.is_cpu for parameter in groups.parameters):
            return torch.optim.SGD(of_torch, lr=self.lr, momentum=self.momentum, foreach=True)
        if self.momentum:
            # torch's fused step fails on a group in which some parameters have had their first gradient and others not.
            of_torch = [group | {"params": [parameter]} for group in of_torch for parameter in group["params"]]
        return torch.optim.SGD(of_torch, lr=self.lr, momentum=self.momentum, fused=True)

    def sparse(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """The same for the rows with a gradient; weight decay and momentum too act on these alone."""
        return RowSGD(groups.decayed(self.decay, key="l2"), lr=self.lr, momentum=self.momentum)
