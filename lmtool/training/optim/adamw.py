"""Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
w <- w - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w) in step t, g being the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lmtool.neural.sparse_optim import RowAdam
from lmtool.training.optim.base import AdamSettings, ParameterGroups


@dataclass(slots=True)
class AdamwOptim(AdamSettings):
    """No settings but those of both forms of Adam."""

    def dense(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """torch's AdamW, its step fused."""
        return torch.optim.AdamW(groups.decayed(self.weight_decay), **self.arguments(), fused=True)

    def sparse(self, groups: ParameterGroups) -> torch.optim.Optimizer:
        """The same for the rows with a gradient, with a step count t for each row; weight decay acts on these alone."""
        return RowAdam(groups.decayed(self.weight_decay), **self.arguments())
