"""A softmax whose scores learn to sum to one: "Fast and robust neural network joint models" (Devlin et al. 2014).

    L = mean of -log p(y|h) + alpha (log Z(h))^2

Shapes: B examples, D hidden, O words that can be predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.groups import OutputConfig
from lmtool.config.rules import setting
from lmtool.neural.outputs.base import OutputLayer
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class SelfNormalizedOutput(OutputConfig):
    """A softmax whose scores learn to sum to one."""

    can_tie: ClassVar[bool] = True
    dense_gradient: ClassVar[bool] = True
    loss_is_log_prob: ClassVar[bool] = False

    alpha: float = setting(min=0)

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        """Return the layer."""
        return SelfNormalizedSoftmax(dim, counts, vectors, alpha=self.alpha)


class SelfNormalizedSoftmax(OutputLayer):
    """s_w = b_w + u_w . h; b starts at the log unigram probabilities of the counts `[O]`."""

    loss_is_log_prob = False

    def __init__(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, *, alpha: float) -> None:
        super().__init__()
        frequency = counts.double() + 0.5
        self.alpha = alpha
        self.bias = nn.Parameter((frequency / frequency.sum()).log().float())
        own = nn.Parameter(dim**-0.5 * torch.randn(len(counts), dim))
        self.vectors = own if vectors is None else vectors

    def _scores(self, h: Tensor) -> Tensor:
        return F.linear(h, self.vectors[: len(self.bias)], self.bias)  # [B, O]

    def loss(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute the mean loss in nats over hidden `[B, D]` and targets `[B]`."""
        scores = self._scores(h)
        return F.cross_entropy(scores, y) + self.alpha * scores.logsumexp(1).square().mean()

    def log_probs(self, h: Tensor) -> Tensor:
        """Compute log p `[B, O]` in float64."""
        return self._scores(h).double().log_softmax(1)
