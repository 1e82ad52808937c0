r"""Adam: steps are the running mean of the gradient over the square root of its square's; weight decay is in both.

.. math::

    g &\leftarrow g + \text{decay}\;w \\
    m &\leftarrow \beta_1 m + (1 - \beta_1)\,g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2 \\
    w &\leftarrow w - \text{lr}\,\frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

g is the gradient by the weights w in step t. With sparse gradients a row without one waits, and makes up for the steps
when it has one again: k steps after the last one its m and v are multiplied by :math:`\beta_1^k` and
:math:`\beta_2^k`, and its step by :math:`(1 - \beta_1^k) / (1 - \beta_1)`, as dense Adam follows m until the next one.

Source: Kingma & Ba (2015), "Adam: a method for stochastic optimization", ICLR, algorithm 1.
Complexity: two more numbers for each weight; for sparse gradients a step works on the rows with one alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lmtool.neural.optimizers.rows import RowAdam
from lmtool.training.optim.base import AdamSettings, ParameterGroups


@dataclass(slots=True)
class AdamOptim(AdamSettings):
    """No settings but those of both forms of Adam."""

    def dense(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """torch's Adam, its step fused."""
        return torch.optim.Adam(groups.decayed(self.decay), **self.arguments(), fused=True)

    def sparse(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """The same for the rows with a gradient, which make up for the steps without them, weight decay aside."""
        return RowAdam(groups.decayed(self.decay, key="l2"), **self.arguments(), correct_skipped_steps=True)
