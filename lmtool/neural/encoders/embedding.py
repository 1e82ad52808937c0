"""The vectors of words, as encoders read them."""

from __future__ import annotations

import math

from torch import nn


class Embedding(nn.Embedding):
    """A vector for each word, `[V, E]`: torch.nn.Embedding, whose vectors start with unit length on average, so that
    tied logits start at the scale of the hidden's.
    """

    weight: nn.Parameter

    def __init__(self, words: int, dim: int, *, sparse: bool = False) -> None:
        """words: V. dim: E. sparse: whether the gradient is sparse."""
        super().__init__(words, dim, sparse=sparse)
        nn.init.normal_(self.weight, std=1 / math.sqrt(dim))

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients."""
        return [self.weight] if self.sparse else []
