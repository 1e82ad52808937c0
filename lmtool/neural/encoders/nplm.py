"""The encoder of the neural probabilistic language model (Bengio et al. 2003): context ids -> hidden.

Legend of shapes: B examples, C context words, E embedding, H hidden units, D what the output layer reads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config import Activation, NplmModel
from lmtool.neural.encoders.embedding import Embedding
from lmtool.neural.encoders.history import History
from lmtool.neural.memory_check import read_at_once

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.tanh: torch.tanh,
    Activation.gelu: F.gelu,
    Activation.relu: F.relu,
    Activation.sigmoid: torch.sigmoid,
}


class NPLM(nn.Module):
    """x = (C(w_t-n+1), ..., C(w_t-1)); a = tanh(d + Hx); y = b + Wx + Ua (Bengio et al. 2003, eq. 1).

    y is the output layer's: with direct connections the hidden handed to it is [a, x], so that its one matrix is
    [U, W] and any output layer goes with either form. With `tied` the output vectors are the embeddings
    (Press & Wolf 2017), and a linear map takes a, and x where there are direct connections, to their dimension;
    projection_dim has one without tying.
    layer_norm (Ba et al. 2016) stands before each activation, dropout (Srivastava et al. 2014) after it; each layer
    after the first adds to what it reads (He et al. 2016). Without layers the hidden is x itself.

    With a history of T words, more than the context has, x goes on with K sums over it (encoders.history).
    """

    def __init__(self, config: NplmModel, vocabulary_size: int, *, tied: bool, sparse: bool = False) -> None:
        super().__init__()
        self.config = config
        self.context_size = max(config.context_size, config.history)
        inputs, width = read_at_once(config) * config.embedding_dim, config.hidden_dim
        self.embedding = Embedding(vocabulary_size, config.embedding_dim, sparse=sparse)
        self.history = None
        if config.history:
            self.history = History(config.forgetting, config.history, config.context_size, config.embedding_dim)
        sizes = [inputs, *[width] * config.layers]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sizes))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.layers) if config.layer_norm else None
        joined = sizes[-1] + (inputs if config.direct and config.layers else 0)
        narrow = config.embedding_dim if tied else config.projection_dim
        self.project = nn.Linear(joined, narrow) if narrow is not None else None
        self.output_dim = narrow if narrow is not None else joined

    def forward(self, contexts: Tensor) -> Tensor:
        """Context ids `[B, C]`, or `[B, T]` with a history, oldest first, to hidden `[B, D]`."""
        if self.history is None:
            return self.of_embeddings(self.embedding(contexts))
        return self.of_embeddings(self.history(contexts, self.embedding.weight, sparse=self.embedding.sparse))

    def of_embeddings(self, x: Tensor) -> Tensor:
        """The same from what is read, embeddings `[B, C, E]` or `[B, C + K, E]`: ordinary tensor operations, which
        can be compiled.
        """
        x = x.flatten(1)
        x = F.dropout(x, self.config.input_dropout, self.training)
        a = x
        for number, layer in enumerate(self.layers):
            before, a = a, layer(a)  # [B, H]
            if self.norms is not None:
                a = self.norms[number](a)
            a = F.dropout(ACTIVATIONS[self.config.activation](a), self.config.dropout, self.training)
            if number:
                a = a + before
        if self.config.direct and len(self.layers):
            a = torch.cat([a, x], dim=1)
        return a if self.project is None else self.project(a)
