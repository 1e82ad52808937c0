"""The vectors of words, as encoders read them."""

from __future__ import annotations

import math

from torch import Tensor, nn

from lmtool.neural.kernels.sparse_rows import lookup


class Embedding(nn.Embedding):
    """A vector for each word, `[V, E]`: torch.nn.Embedding, but its gradient is summed row by row, and coalesced where
    it is sparse.

    Vectors start with unit length on average, so that tied logits start at the scale of the hidden's.
    """

    weight: nn.Parameter

    def __init__(self, words: int, dim: int, *, sparse: bool = False) -> None:
        """words: V. dim: E. sparse: whether the gradient is sparse."""
        super().__init__(words, dim, sparse=sparse)
        nn.init.normal_(self.weight, std=1 / math.sqrt(dim))

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients."""
        return [self.weight] if self.sparse else []

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors `[..., E]` of ids `[...]`, int64."""
        return lookup(self.weight, ids, sparse=self.sparse)
