"""Encoders without hidden layers: the continuous bag of words, and the log-bilinear model.

Legend of shapes: B examples, C context words, E dimension of the embeddings, V words of the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmtool.config.groups import EncoderConfig
from lmtool.neural.encoders.base import Encoder


class CBOW(Encoder):
    """h `[B, E]`, the mean of the context's embeddings (Mikolov et al. 2013, section 3.1). dropout acts on h."""

    def of_embeddings(self, x: Tensor) -> Tensor:
        return self.with_dropout(x.mean(1), self.config.dropout)


class LBL(Encoder):
    """r = sum over the context of C_i r_w_i (Mnih & Hinton 2007, eq. 5), with a matrix C_i `[E, E]` for each position.

    diagonal: C_i are diagonal (Mnih & Hinton 2009). Each C_i starts near the identity over C, so that r
    starts as the mean of the context. dropout acts on the embeddings.
    """

    def __init__(self, config: EncoderConfig, vocabulary_size: int, *, diagonal: bool, sparse: bool = False) -> None:
        """vocabulary_size: V. sparse: whether the gradient of the embeddings is sparse."""
        super().__init__(config, vocabulary_size, sparse=sparse)
        size, dim = config.context_size, config.embedding_dim
        start = torch.ones(size, dim) if diagonal else torch.eye(dim).repeat(size, 1, 1)
        self.positions = nn.Parameter((start + torch.randn_like(start) * dim**-0.5) / size)  # [C, E, E] or [C, E]

    def of_embeddings(self, x: Tensor) -> Tensor:
        x = self.with_dropout(x, self.config.dropout)
        if self.positions.dim() == 2:  # diagonal
            return (x * self.positions).sum(1)
        return x.flatten(1) @ self.positions.flatten(0, 1)
