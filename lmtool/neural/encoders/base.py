"""What every encoder is: context ids -> the hidden vector that the output layer reads.

Legend of shapes: B examples, C context words, E dimension of the embeddings, D dimension of the hidden, V words of the
vocabulary.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lmtool.config.groups import EncoderConfig
from lmtool.neural.checks import require_ids
from lmtool.neural.encoders.embedding import Embedding
from lmtool.neural.kernels.plain_step import PlainLayer


def takes_contexts(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Have the forward of an encoder get its contexts `[B, C]` checked.

    Device and range are what looking up the embeddings compares anyway: they are looked at where it fails.
    """

    @functools.wraps(forward)
    def checked(self: Encoder, contexts: Tensor, *others: Any, **named: Any) -> Tensor:
        if not _usual(contexts, self.context_size):
            contexts = _required(self, contexts, None)
        try:
            return forward(self, contexts, *others, **named)
        except (IndexError, RuntimeError, TypeError):
            _required(self, contexts, self.embedding.num_embeddings)
            raise

    return checked


def _usual(contexts: Tensor, size: int) -> bool:
    """Whether contexts are such as a training gives: an int64 tensor `[B, C]` on the CPU."""
    if not isinstance(contexts, Tensor) or contexts.dtype is not torch.int64 or not contexts.is_cpu:
        return False
    shape = contexts.shape
    return len(shape) == 2 and shape[1] == size and contexts.layout is torch.strided and contexts.is_contiguous()


def _required(encoder: Encoder, contexts: Tensor, count: int | None) -> Tensor:
    shapes = (("B", encoder.context_size),)
    return require_ids(encoder, ".forward: contexts", contexts, shapes, count, encoder.embedding.weight)


class Encoder(nn.Module, ABC):
    """Contexts `[B, C]` -> hidden `[B, D]`, through embeddings `[V, E]`; the contract of the group `model`.

    config: the settings that it is built from. context_size: C, the words that forward reads. output_dim: D, which is E
    unless the encoder sets another one. across_sentences: whether contexts go on into the sentences before.
    consecutive: the examples that follow one another in a batch from which forward gains.
    embedding: the vectors of the words, in float32 unless torch's default dtype is another one.

    An encoder of one's own calls this constructor, makes its further weights, and implements of_embeddings. What its
    forward is given is checked before it is called: ValueError for contexts that are not integers `[B, C]` on the
    device of the embeddings and, on a CPU, for ids of V or more or below 0; they may also be an array or a list.
    """

    config: EncoderConfig
    consecutive: int = 1

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "forward" in vars(cls):
            cls.forward = takes_contexts(vars(cls)["forward"])  # type: ignore[method-assign]

    def __init__(self, config: EncoderConfig, vocabulary_size: int, *, sparse: bool = False) -> None:
        """vocabulary_size: V. sparse: whether the gradient of the embeddings is sparse."""
        super().__init__()
        self.config = config
        self.context_size = config.context_size
        self.output_dim = config.embedding_dim
        self.across_sentences = bool(config.across_sentences)
        self.embedding = Embedding(vocabulary_size, config.embedding_dim, sparse=sparse)

    @takes_contexts
    def forward(self, contexts: Tensor) -> Tensor:
        """Hidden `[B, D]` after context ids `[B, C]`, int64, oldest word first, left-padded with the id of `<s>`."""
        return self.of_embeddings(self.embedding(contexts))

    @abstractmethod
    def of_embeddings(self, x: Tensor) -> Tensor:
        """Hidden `[B, D]` from the embeddings of the contexts, `[B, C, E]`, in ordinary tensor operations alone."""

    def plain_layer(self) -> PlainLayer | None:
        """The one hidden layer between embeddings and hidden, where there is nothing else: for kernels.plain_step.

        None, the default, for any other encoder.
        """
        return None

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients, for the optimisers of lmtool.neural.sparse_optim."""
        return self.embedding.row_parameters()

    def use_dense_gradients(self) -> None:
        """Give the embeddings a dense gradient from now on."""
        self.embedding.sparse = False

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have torch.compile, to which the arguments go, compile of_embeddings.

        Looking up embeddings is a compiled loop already, which would only break torch's graph.
        """
        self.of_embeddings = torch.compile(self.of_embeddings, *args, **kwargs)  # type: ignore[method-assign]
