"""What every encoder is: context ids -> the hidden vector that the output layer reads.

Legend of shapes: B examples, C context words, E dimension of the embeddings, D dimension of the hidden, V words of the
vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from lmtool.config.groups import EncoderConfig
from lmtool.neural.encoders.embedding import Embedding


class Encoder(nn.Module, ABC):
    """Contexts `[B, C]` -> hidden `[B, D]`, through embeddings `[V, E]`; the contract of the group `model`.

    config: the settings that it is built from. context_size: C, the words that forward reads. output_dim: D, which is E
    unless the encoder sets another one. across_sentences: whether contexts go on into the sentences before.
    embedding: the vectors of the words, in float32 unless torch's default dtype is another one.

    An encoder of one's own calls this constructor, makes its further weights, and implements of_embeddings.
    """

    config: EncoderConfig

    def __init__(self, config: EncoderConfig, vocabulary_size: int, *, sparse: bool = False) -> None:
        """vocabulary_size: V. sparse: whether the gradient of the embeddings is sparse."""
        super().__init__()
        self.config = config
        self.context_size = config.context_size
        self.output_dim = config.embedding_dim
        self.across_sentences = config.across_sentences
        self.embedding = Embedding(vocabulary_size, config.embedding_dim, sparse=sparse)

    def forward(self, contexts: Tensor) -> Tensor:
        """Hidden `[B, D]` after context ids `[B, C]`, int64, oldest word first, left-padded with the id of `<s>`."""
        return self.of_embeddings(self.embedding(contexts))

    @abstractmethod
    def of_embeddings(self, x: Tensor) -> Tensor:
        """Hidden `[B, D]` from the embeddings of the contexts, `[B, C, E]`, in ordinary tensor operations alone."""

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients, for the optimisers of lmtool.neural.sparse_optim."""
        return self.embedding.row_parameters()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have torch.compile, to which the arguments go, compile of_embeddings.

        Looking up embeddings is a compiled loop already, which would only break torch's graph.
        """
        self.of_embeddings = torch.compile(self.of_embeddings, *args, **kwargs)  # type: ignore[method-assign]
