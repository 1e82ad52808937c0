"""The encoder of the neural probabilistic language model (Bengio et al. 2003): context ids -> hidden.

Legend of shapes: B examples, C context words, E embedding, H hidden units, D what the output layer reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config import Activation, NplmModel

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.tanh: torch.tanh,
    Activation.gelu: F.gelu,
    Activation.relu: F.relu,
}


class NPLM(nn.Module):
    """x = (C(w_t-n+1), ..., C(w_t-1)); a = tanh(d + Hx); y = b + Wx + Ua (Bengio et al. 2003, eq. 1).

    y is the output layer's: with direct connections the hidden handed to it is [a, x], so that its one matrix is
    [U, W] and any output layer goes with either form. With `tied` the output vectors are the embeddings
    (Press & Wolf 2017), and a linear map takes a, and x where there are direct connections, to their dimension.
    layer_norm (Ba et al. 2016) stands before the activation, dropout (Srivastava et al. 2014) after it.
    """

    def __init__(self, config: NplmModel, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        inputs = config.context_size * config.embedding_dim
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_dim)
        self.hidden = nn.Linear(inputs, config.hidden_dim)
        self.norm = nn.LayerNorm(config.hidden_dim) if config.layer_norm else None
        joined = config.hidden_dim + (inputs if config.direct else 0)
        self.project = nn.Linear(joined, config.embedding_dim) if config.tied else None
        self.output_dim = config.embedding_dim if config.tied else joined
        # Unit length for a word's vector, so that tied logits start at the scale of the hidden's.
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(config.embedding_dim))

    def forward(self, contexts: Tensor) -> Tensor:
        """Context ids `[B, C]`, oldest first, to hidden `[B, D]`."""
        x = self.embedding(contexts).flatten(1)  # [B, C * E]
        a = self.hidden(x)  # [B, H]
        if self.norm is not None:
            a = self.norm(a)
        a = F.dropout(ACTIVATIONS[self.config.activation](a), self.config.dropout, self.training)
        if self.config.direct:
            a = torch.cat([a, x], dim=1)
        return a if self.project is None else self.project(a)
