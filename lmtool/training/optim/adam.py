r"""Adam: steps are the running mean of the gradient over the square root of its square's; weight decay is in both.

.. math::

    g &\leftarrow g + \text{decay}\;w \\
    m &\leftarrow \beta_1 m + (1 - \beta_1)\,g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2 \\
    w &\leftarrow w - \text{lr}\,\frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

g is the gradient by the weights w in step t; for sparse gradients each row has its own t.

Source: Kingma & Ba (2015), "Adam: a method for stochastic optimization", ICLR, algorithm 1.
Complexity: two more numbers for each weight; for sparse gradients a step works on the rows with one alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lmtool.neural.sparse_optim import RowAdam
from lmtool.training.optim.base import AdamSettings, ParameterGroups


@dataclass(slots=True)
class AdamOptim(AdamSettings):
    """No settings but those of both forms of Adam."""

    def dense(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """torch's Adam, its step fused."""
        return torch.optim.Adam(groups.decayed(self.weight_decay), **self.arguments(), fused=True)

    def sparse(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """The same for the rows with a gradient, with a step count t for each row; weight decay acts on these alone."""
        return RowAdam(groups.decayed(self.weight_decay, key="l2"), **self.arguments())
