"""The sampled softmax as an output layer: in training the sum over all words is one over some of them.

Legend of shapes: B examples, D hidden, O outputs, k samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from lmtool.neural.kernels.alias_table import AliasTable
from lmtool.neural.outputs.nce import noise_distribution
from lmtool.neural.kernels.sparse_rows import lookup
from lmtool.neural.outputs.word_scores import WordScores


class SampledSoftmax(WordScores):
    """Cross-entropy over the target and k words drawn for the batch, scores less log k q (Bengio & Senecal 2008; Jean
    et al. 2015).

    With q the chance to be drawn, the correction makes the sum over samples a fair estimate of Z; the target among the
    samples counts once. The bias of the gradient falls with k. Probabilities that are asked for are exact.

    samples: k. power: of the unigram distribution that they are drawn from. counts, vectors, sparse: as WordScores.
    Raises ValueError for k above O.
    """

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None = None,
        *,
        samples: int = 1000,
        power: float = 1.0,
        sparse: bool = False,
    ) -> None:
        super().__init__(dim, counts, vectors, sparse=sparse)
        if not 1 <= samples <= len(counts):
            raise ValueError(f"samples={samples}: from 1 to {len(counts)}, the words there are")
        self.samples = samples
        log_q = noise_distribution(counts, power)
        self.table = AliasTable(log_q.exp())
        self.register_buffer("log_kq", (log_q + math.log(samples)).to(torch.get_default_dtype()), persistent=False)
        self.log_kq: Tensor

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean of the sampled cross-entropy in nats over hidden `[B, D]` and targets `[B]`; no log-probability."""
        return self.loss_with(h, y, self.table.draw(self.samples).to(h.device))

    def loss_with(self, h: Tensor, y: Tensor, samples: Tensor) -> Tensor:
        """The same with given samples `[k]`."""
        words = torch.cat([y, samples])
        offset = lookup(self.bias, words, sparse=self.sparse) - self.log_kq[words]
        vectors = lookup(self.vectors, words, sparse=self.sparse)  # [B + k, D]
        real = (h * vectors[: len(y)]).sum(1) + offset[: len(y)]
        others = torch.addmm(offset[len(y) :], h, vectors[len(y) :].T)  # [B, k]
        others = others.masked_fill(y[:, None] == samples, -torch.inf)
        return F.cross_entropy(torch.cat([real[:, None], others], 1), torch.zeros_like(y))
