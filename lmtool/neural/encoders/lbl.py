"""The encoder of the log-bilinear model (Mnih & Hinton 2007): context ids -> the predicted representation.

Legend of shapes: B examples, C context words, E embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config import LblModel
from lmtool.neural.encoders.embedding import Embedding


class LBL(nn.Module):
    """r = sum over the context of C_i r_w_i (Mnih & Hinton 2007, eq. 5), a matrix C_i `[E, E]` a position.

    diagonal: C_i are diagonal, a number for each of the E (Mnih & Hinton 2009). Each C_i starts near the identity
    over C, so that r starts as the mean of the context.
    """

    def __init__(self, config: LblModel, vocabulary_size: int, *, sparse: bool = False) -> None:
        super().__init__()
        self.config = config
        self.context_size = config.context_size
        size, dim = config.context_size, config.embedding_dim
        self.embedding = Embedding(vocabulary_size, dim, sparse=sparse)
        start = torch.ones(size, dim) if config.diagonal else torch.eye(dim).repeat(size, 1, 1)
        self.positions = nn.Parameter((start + torch.randn_like(start) * dim**-0.5) / size)
        self.output_dim = dim

    def forward(self, contexts: Tensor) -> Tensor:
        """Context ids `[B, C]`, oldest first, to r `[B, E]`."""
        return self.of_embeddings(self.embedding(contexts))

    def of_embeddings(self, x: Tensor) -> Tensor:
        """The same from the embeddings `[B, C, E]`: ordinary tensor operations, which can be compiled."""
        x = F.dropout(x, self.config.dropout, self.training)
        if self.config.diagonal:
            return (x * self.positions).sum(1)
        return x.flatten(1) @ self.positions.flatten(0, 1)
