r"""Adagrad: the rate of each weight falls with the gradients that it has had.

.. math::

    g &\leftarrow g + \text{decay}\;w \\
    s &\leftarrow s + g^2 \\
    w &\leftarrow w - \text{lr}\,\frac{g}{\sqrt{s} + \epsilon}

g is the gradient by the weights w.

Source: Duchi, Hazan & Singer (2011), "Adaptive subgradient methods for online learning and stochastic optimization",
    JMLR 12.
Complexity: one more number for each weight; for sparse gradients a step works on the rows with one alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from lmtool.config.groups import OptimConfig
from lmtool.config.rules import MISSING, require
from lmtool.neural.optimizers.rows import RowAdagrad
from lmtool.training.optim.base import ParameterGroups


@dataclass(slots=True)
class AdagradOptim(OptimConfig):
    """eps: added to the square root."""

    eps: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        require(0 < self.eps < math.inf, "optim.eps", self.eps, "more than 0")

    def dense(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """torch's Adagrad, its step fused on a CPU, the only device for which torch has that; elsewhere each of its
        operations works on all parameters together.
        """
        fused = all(parameter.is_cpu for parameter in groups.parameters)
        return torch.optim.Adagrad(groups.decayed(self.decay), lr=self.lr, eps=self.eps, fused=fused, foreach=not fused)

    def sparse(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """The same for the rows with a gradient; weight decay too acts on these alone."""
        return RowAdagrad(groups.decayed(self.decay, key="l2"), lr=self.lr, eps=self.eps)
