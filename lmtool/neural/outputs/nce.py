"""Noise-contrastive estimation as an output layer.

Legend of shapes: B examples, D hidden, O outputs, k noise words.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from lmtool.neural.kernels.alias_table import AliasTable
from lmtool.neural.kernels.sparse_rows import logistic_loss, lookup, row_scores
from lmtool.neural.outputs.word_scores import WordScores, log_unigram, noise_pairs


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """log q `[O]` in float64: the unigram distribution to a power; 0 makes it uniform."""
    return (power * log_unigram(counts)).log_softmax(0)


class NCELoss(WordScores):
    """Tells the word of the text from k noise words (Gutmann & Hyvärinen 2010; Mnih & Teh 2012, eq. 8 to 10).

    J = -log sigma(s_y - log k q_y) - sum over the noise words of log sigma(log k q_w - s_w), s = b_w + u_w . h - log
    Z(h). log Z is fixed to 0, or learned (`learn_normaliser`) as an affine function of h. b starts at the log unigram
    probabilities, where the scores sum to one. The work of a step does not depend on O. Probabilities that are asked
    for are exact, by the softmax of the scores.

    noise: k. shared: one set of noise words for the whole batch, instead of one an example. power: of the unigram
    distribution that noise comes from. counts, vectors, sparse: as WordScores. Raises ValueError for k above O.
    """

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None = None,
        *,
        noise: int = 100,
        shared: bool = True,
        power: float = 1.0,
        learn_normaliser: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__(dim, counts, vectors, sparse=sparse)
        if not 1 <= noise <= len(counts):
            raise ValueError(f"noise={noise}: from 1 to {len(counts)}, the words there are")
        self.noise, self.shared = noise, shared
        log_q = noise_distribution(counts, power)
        self.table = AliasTable(log_q.exp())
        self.register_buffer("log_kq", (log_q + math.log(noise)).to(torch.get_default_dtype()), persistent=False)
        self.log_kq: Tensor
        self.normaliser = nn.Linear(dim, 1) if learn_normaliser else None
        if self.normaliser is not None:
            nn.init.zeros_(self.normaliser.weight)
            nn.init.zeros_(self.normaliser.bias)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean of J in nats over hidden `[B, D]` and targets `[B]`; no log-probability."""
        noise = self.table.draw(self.noise) if self.shared else self.table.draw(len(y), self.noise)
        return self.loss_with(h, y, noise.to(h.device))

    def loss_with(self, h: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """Mean of J with given noise words: `[k]` for the whole batch or `[B, k]`."""
        if noise.dim() == 1:
            words = torch.cat([y, noise])
            offset = lookup(self.bias, words, sparse=self.sparse) - self.log_kq[words]
            vectors = lookup(self.vectors, words, sparse=self.sparse)  # [B + k, D]
            real = (h * vectors[: len(y)]).sum(1) + offset[: len(y)]
            fake = torch.addmm(offset[len(y) :], h, vectors[len(y) :].T)  # [B, k]
        else:
            pairs = noise_pairs(y, noise)
            both = row_scores(h, self.vectors, self.bias, pairs, sparse=self.sparse) - self.log_kq[pairs.rows]
            real, fake = both.view(len(y), -1)[:, 0], both.view(len(y), -1)[:, 1:]
        if self.normaliser is not None:
            log_z = self.normaliser(h)  # [B, 1]
            real, fake = real - log_z[:, 0], fake - log_z
        one = torch.ones(1, dtype=torch.int32, device=h.device)
        return (logistic_loss(real, one) + logistic_loss(fake, -one)) / len(y)

    def unnormalised(self, h: Tensor, y: Tensor) -> Tensor:
        """s_y - log Z(h) as they are trained, `[B]` in float64: near log p(y|h), but they sum to one only about."""
        with torch.no_grad():
            scores = self.scores(h, y).double()
            return scores if self.normaliser is None else scores - self.normaliser(h)[:, 0].double()

    def trained_log_z(self, h: Tensor) -> Tensor:
        """log of what exp(s - log Z(h)) sums to over all words, `[B]` in float64: 0 for scores that are
        probabilities.
        """
        with torch.no_grad():
            log_z = self.log_z(h)
            return log_z if self.normaliser is None else log_z - self.normaliser(h)[:, 0].double()
