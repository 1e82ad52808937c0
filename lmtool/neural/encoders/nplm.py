r"""The encoder of the neural probabilistic language model: hidden layers over the context's embeddings side by side.

.. math::

    x &= (C(w_{t-C}), \dots, C(w_{t-1}), z_1, \dots, z_K) \\
    z_k &= s_k \odot \sum_{i=1}^{T} v_{ki}\,C(w_{t-i}) \\
    a &= f(d + H x) \odot (d' + H' x)

C(w) is the embedding of w and f the activation; `layer_norm` normalizes the argument of f and the gate. The gate, the
second factor of a, is present with `gated`; the sums z over the last T words, in which older words count less (FOFE),
with `history`: for each forgetting factor one weight for each distance, initially :math:`v_{ki} \propto
\alpha_k^{i-1}`, and one scale for each component, all of them learned. Each layer after the first is residual: its
input is added to its output. The paper's network is a = tanh(d + Hx), and with `direct` the output layer reads (a, x).

Legend of shapes: B examples, C context words, T words of a history, K sums over it, E dimension of the embeddings, H
hidden units, D dimension of the hidden states that the output layer reads, V words of the vocabulary.

Source: Bengio, Ducharme, Vincent & Jauvin (2003), "A neural probabilistic language model", JMLR 3, eq. 1; gates:
    Dauphin et al. (2017), Shazeer (2020); FOFE: Zhang et al. (2015), "The fixed-size ordinally-forgetting encoding
    method for neural network language models", ACL, eq. 1; layer normalization: Ba et al. (2016).
Complexity: O(((C + K) E + (layers - 1) H) H) for each example, twice that with gates, and O(T K E) for a history; V E
    weights in addition to the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.encoders.base import Encoder
from lmtool.neural.encoders.settings import Activation, NplmSettings
from lmtool.neural.forms import Formed
from lmtool.neural.rows import rows_of

CONSECUTIVE = 8  # consecutive examples of the text that share the computation of their sums

FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.tanh: torch.tanh,
    Activation.gelu: F.gelu,
    Activation.relu: F.relu,
    Activation.sigmoid: torch.sigmoid,
}


class History(Formed):
    """z_k = s_k sum_t v_kt C(w_-t), with v_kt initially alpha_k^(t-1), scaled to unit length over t."""

    def __init__(self, forgetting: list[float], length: int, words: int, dim: int) -> None:
        """forgetting: alpha, K of them, above 0 and at most 1. length: T. words: C. dim: E."""
        super().__init__()
        age = torch.arange(length - 1, -1, -1)
        powers = torch.tensor(forgetting)[:, None] ** age
        self.weights = nn.Parameter(nn.functional.normalize(powers, dim=1))  # [K, T]
        self.scale = nn.Parameter(torch.ones(len(forgetting), dim))  # a gain, which weight decay spares
        self.words = words

    def forward(self, contexts: Tensor, vectors: Tensor, *, sparse: bool) -> Tensor:
        """Return the vectors of the last C words, then the K sums, `[B, C + K, E]`.

        contexts: ids `[B, T]`, int64, oldest word first. vectors: `[V, E]`. sparse: whether their gradient is sparse.
        """
        x: Tensor = self.computed("words_and_sums", contexts, vectors, sparse)
        return torch.cat([x[:, : self.words], x[:, self.words :] * self.scale], dim=1)

    def words_and_sums(self, contexts: Tensor, vectors: Tensor, sparse: bool) -> Tensor:
        """Compute the vectors of the last C words and the sums before they are scaled, `[B, C + K, E]`."""
        x = rows_of(vectors, contexts, sparse=sparse)  # [B, T, E]
        return torch.cat([x[:, x.shape[1] - self.words :], self.weights @ x], dim=1)


class NPLM(Encoder):
    """a = f(d + Hx) (d' + H'x), each layer after the first residual (He et al. 2016); without layers, x.

    H and H' are one matrix here; with gelu, the gate is Shazeer's GEGLU (2020, eq. 5). Dropout (Srivastava et al. 2014)
    follows each activation. With direct connections the hidden state is [a, x]: the paper's y = b + Wx + Ua is then the
    output layer's, with one matrix [U, W]. tied: the output vectors are the embeddings (Press & Wolf 2017), and a
    linear map takes the hidden state to their dimension; projection_dim adds one without tying. With a history of T
    words, more than the context, contexts are `[B, T]`.
    """

    config: NplmSettings

    def __init__(self, config: NplmSettings, vocabulary_size: int, *, tied: bool, sparse: bool = False) -> None:
        """vocabulary_size: V. tied: whether D must be E. sparse: whether the gradient of the embeddings is sparse."""
        super().__init__(config, vocabulary_size, sparse=sparse)
        far = config.history_words()
        self.context_size, self.zero_padding = max(config.context_size, far), config.zero_padding
        inputs, width = config.input_dim(), config.hidden_dim
        self.history = None
        if far:
            self.history = History(config.forgetting_factors, far, config.context_size, config.embedding_dim)
            self.consecutive = CONSECUTIVE
        sizes = [inputs, *[width] * config.layers]
        parts = 2 if config.gated else 1
        self.layers = nn.ModuleList(nn.Linear(before, after * parts) for before, after in pairwise(sizes))
        self.norms = self._layer_norms() if config.layer_norm else None
        self.gate_norms = self._layer_norms() if config.layer_norm and config.gated else None
        joined = sizes[-1] + (inputs if config.direct_connections and config.layers else 0)
        projection = config.embedding_dim if tied else config.projection_dim
        self.project = nn.Linear(joined, projection) if projection is not None else None
        self.output_dim = projection if projection is not None else joined

    def _layer_norms(self) -> nn.ModuleList:
        return nn.ModuleList(nn.LayerNorm(self.config.hidden_dim) for _ in self.layers)

    def encode(self, contexts: Tensor) -> Tensor:
        """Compute hidden states `[B, D]` after ids `[B, C]`, or `[B, T]` with a history; int64, oldest word first."""
        if self.history is None:
            return self.of_embeddings(self.embedding(contexts))
        return self.of_embeddings(self.history(contexts, self.embedding.weight, sparse=self.embedding.sparse))

    def of_embeddings(self, x: Tensor) -> Tensor:
        """Compute hidden states `[B, D]` from x, `[B, C, E]`, or `[B, C + K, E]` with a history."""
        x = self.with_dropout(x.flatten(1), self.config.input_dropout)
        a = x
        for number, layer in enumerate(self.layers):
            units: Tensor = self.computed("units", layer(a).to(x.dtype), number)  # [B, H]; from autocast
            a = units + a if number else units
        if self.config.direct_connections and len(self.layers):
            a = torch.cat([a, x], dim=1)
        return a if self.project is None else self.project(a)

    def units(self, z: Tensor, number: int) -> Tensor:
        """Compute dropout(f(norm(z))), `[B, H]`; with gates, z and z' side by side, dropout(f(norm(z)) norm'(z'))."""
        z, *gate = z.chunk(2, dim=1) if self.config.gated else (z,)
        a = FUNCTIONS[self.config.activation](z if self.norms is None else self.norms[number](z))
        if gate:
            a = a * (gate[0] if self.gate_norms is None else self.gate_norms[number](gate[0]))
        return self.with_dropout(a, self.config.dropout)

    def norms_of(self, number: int) -> list[nn.LayerNorm]:
        """Return the layer norms of a layer, if any: of f's argument and of the gate."""
        return [cast(nn.LayerNorm, norms[number]) for norms in (self.norms, self.gate_norms) if norms is not None]
