r"""Adam with decoupled weight decay: the decay is not divided by the size of the gradients.

.. math::

    m &\leftarrow \beta_1 m + (1 - \beta_1)\,g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2 \\
    w &\leftarrow w - \text{lr} \left( \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} +
        \text{decay}\;w \right)

g is the gradient by the weights w in step t. With sparse gradients a row without one waits, and makes up for the steps
when it has one again: k steps after the last one its m and v are multiplied by :math:`\beta_1^k` and
:math:`\beta_2^k`, w by :math:`(1 - \text{lr}\,\text{decay})^k`, and its step by
:math:`(1 - \beta_1^k) / (1 - \beta_1)`, as dense Adam follows m until the next one.

Source: Loshchilov & Hutter (2019), "Decoupled weight decay regularization", ICLR, algorithm 2.
Complexity: two more numbers for each weight; for sparse gradients a step works on the rows with one alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lmtool.config.groups import OutputConfig
from lmtool.neural.optimizers.rows import RowAdam
from lmtool.training.optim.base import AdamSettings, ParameterGroups


@dataclass(slots=True)
class AdamwOptim(AdamSettings):
    """No settings but those of both forms of Adam. weight_decay: None for what suits the output layer."""

    def suit(self, output: OutputConfig) -> None:
        """The decay that suits the output layer, where none is given."""
        self.weight_decay = output.weight_decay if self.weight_decay is None else self.weight_decay

    def dense(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """torch's AdamW, its step fused."""
        return torch.optim.AdamW(groups.decayed(self.decay), **self.arguments(), fused=True)

    def sparse(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """The same for the rows with a gradient, which make up for the steps without them, weight decay included."""
        return RowAdam(groups.decayed(self.decay), **self.arguments(), correct_skipped_steps=True)
