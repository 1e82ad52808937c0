"""FOFE, the fixed-size ordinally forgetting encoding of long contexts (Zhang et al. 2015): the last words one by one,
and sums over all words in which older ones count less.

Legend of shapes: B examples, T words of a context, the last C of them read one by one, K sums, E dimension of the
embeddings, V words of the vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from lmtool.neural.forms import Formed
from lmtool.neural.rows import rows_of

CONSECUTIVE = 8  # consecutive examples of the text that share the computation of their sums


class History(Formed):
    """z_k = sum_t a_kt C(w_-t): FOFE (Zhang et al. 2015, eq. 1) for several forgetting factors alpha_k.

    a_kt is learned, one weight for each distance t, and starts as alpha_k^(t-1), scaled to unit length over t; so is a
    scale for each component of z_k.
    """

    decays: ClassVar[dict[str, bool]] = {"scale": False}  # a gain, which starts at 1

    def __init__(self, forgetting: list[float], length: int, words: int, dim: int) -> None:
        """forgetting: alpha, K of them, above 0 and at most 1. length: T. words: C. dim: E."""
        super().__init__()
        age = torch.arange(length - 1, -1, -1)
        powers = torch.tensor(forgetting)[:, None] ** age
        self.weights = nn.Parameter(nn.functional.normalize(powers, dim=1))  # [K, T]
        self.scale = nn.Parameter(torch.ones(len(forgetting), dim))
        self.words = words

    def forward(self, contexts: Tensor, vectors: Tensor, *, sparse: bool) -> Tensor:
        """Return the vectors of the last C words, then the K sums, `[B, C + K, E]`.

        contexts: ids `[B, T]`, int64, oldest word first. vectors: embeddings `[V, E]`. sparse: whether their gradient
        is sparse.
        """
        x: Tensor = self.computed("words_and_sums", contexts, vectors, sparse)
        return torch.cat([x[:, : self.words], x[:, self.words :] * self.scale], dim=1)

    def words_and_sums(self, contexts: Tensor, vectors: Tensor, sparse: bool) -> Tensor:
        """Compute the vectors of the last C words and the sums before they are scaled, `[B, C + K, E]`."""
        x = rows_of(vectors, contexts, sparse=sparse)  # [B, T, E]
        return torch.cat([x[:, x.shape[1] - self.words :], self.weights @ x], dim=1)
