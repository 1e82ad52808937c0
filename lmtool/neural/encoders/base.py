"""The contract of encoders: context ids -> the hidden state that the output layer reads; and the word embeddings.

Legend of shapes: B examples, C context words, E dimension of the embeddings, D dimension of the hidden states, V words
of the vocabulary.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.groups import EncoderConfig
from lmtool.neural.checks import require_ids
from lmtool.neural.forms import Formed


class Encoder(Formed, ABC):
    """Contexts `[B, C]` -> hidden states `[B, D]`, through embeddings `[V, E]`; the contract of the group `model`.

    config: the settings that it is built from. context_size: C, the words that forward reads; None for all.
    output_dim: D, which is E unless the encoder sets another one. across_sentences: whether contexts extend into
    earlier sentences. consecutive: number of consecutive examples in a batch that make forward faster. embedding: the
    vectors of the words, in torch's default dtype; they start with unit length on average, so that tied logits start at
    the scale of the hidden states. zero_padding: whether the last one, of `<s>`, is 0 and not trained.

    A custom encoder calls this constructor, makes its further weights, and implements of_embeddings, or encode if it
    does not read the embeddings of its contexts as they are. Both are called by forward, which checks the contexts.

    >>> import torch
    >>> from lmtool.neural import Encoder
    >>> class MeanOfWords(Encoder):
    ...     def of_embeddings(self, x):
    ...         return x.mean(dim=1)
    >>> MeanOfWords.of_embeddings(None, torch.ones(8, 4, 16)).shape  # conf/model/mean.yaml: guide "Adding an option"
    torch.Size([8, 16])
    """

    config: EncoderConfig
    consecutive: int = 1
    zero_padding: bool = False

    def __init__(self, config: EncoderConfig, vocabulary_size: int, *, sparse: bool = False) -> None:
        """vocabulary_size: V. sparse: whether the gradient of the embeddings is sparse."""
        super().__init__()
        self.config = config
        self.context_size: int | None = config.context_size
        self.output_dim = config.embedding_dim
        self.across_sentences = bool(config.across_sentences)
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_dim, sparse=sparse)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(config.embedding_dim))

    def forward(self, contexts: Tensor) -> Tensor:
        """Return hidden states `[B, D]` after context ids `[B, C]`, int64, oldest word first, left-padded with `<s>`.

        Raises ValueError for contexts that are not integers `[B, C]` on the device of the embeddings and, on a CPU, for
        ids of V or more or below 0; they may also be an array or a list.
        """
        weight = self.embedding.weight
        shapes = (("B", self.context_size or "C"),)
        return self.encode(require_ids(self, ".forward: contexts", contexts, shapes, len(weight), weight))

    def encode(self, contexts: Tensor) -> Tensor:
        """Compute hidden states `[B, D]` after contexts `[B, C]` that have been checked."""
        return self.of_embeddings(self.embedding(contexts))

    @abstractmethod
    def of_embeddings(self, x: Tensor) -> Tensor:
        """Compute hidden states `[B, D]` from the embeddings of the contexts, `[B, C, E]`, in plain torch."""

    def with_dropout(self, x: Tensor, share: float) -> Tensor:
        """In training, set each number of x `[...]` to 0 with probability `share`, divide the others by 1 - share."""
        if not (self.training and share):
            return x
        dropped: Tensor = self.computed("dropped", x, share)
        return dropped

    def dropped(self, x: Tensor, share: float) -> Tensor:
        """Compute dropout of x `[...]` in training, by torch's random state."""
        return F.dropout(x, share)

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients, for the optimizers of lmtool.neural.optimizers."""
        return list(self.embedding.parameters()) if self.embedding.sparse else []

    def use_dense_gradients(self) -> None:
        """Give the embeddings a dense gradient from now on."""
        self.embedding.sparse = False

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile of_embeddings by torch.compile; the look-up of embeddings would only break its graph."""
        self.of_embeddings = torch.compile(self.of_embeddings, *args, **kwargs)  # type: ignore[method-assign]
