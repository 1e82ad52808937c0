r"""Noise-contrastive estimation: the word of the text is told from noise words; no sum over all words is needed.

.. math::

    J &= -\log \sigma(s_y - \log k q_y) - \sum_{j=1}^{k} \log \sigma(\log k q_{w_j} - s_{w_j})
        \qquad w_j \sim q \propto \text{unigram}^{\text{power}} \\
    s_w &= b_w + u_w \cdot h - \log Z(h)

log Z is fixed to 0, or with `learn_normaliser` an affine function of h. A noise word may be y; with q the exact
probability of the draws, the optimum is s_w = log p(w|h) of the data at every k. Evaluation is exact: p(w|h) is the
softmax of the scores.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, k noise words.

Source: Gutmann & Hyvärinen (2010), "Noise-contrastive estimation", AISTATS; Mnih & Teh (2012), "A fast and simple
    algorithm for training neural probabilistic language models", ICML, eq. 8 to 10.
Complexity: O(D k) for each example in training, whatever O; O(D O) for exact probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmtool.config.groups import OutputConfig
from lmtool.config.rules import MISSING, require, require_whole
from lmtool.neural.checks import require_counts, require_ids
from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels.row_losses import log_decisions, noise_loss, own_scores
from lmtool.neural.kernels.shared_rows import own_and_shared_scores
from lmtool.neural.kernels.sparse_rows import logistic_loss, pairs_of, row_scores
from lmtool.neural.outputs.base import require_at_most_words, takes_words
from lmtool.neural.outputs.noise import Noise, noise_distribution
from lmtool.neural.outputs.word_scores import WordScores
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class NceOutput(OutputConfig):
    """Noise-contrastive estimation (Mnih & Teh 2012); conf/output/nce.yaml says what each setting does."""

    can_tie = True
    loss_is_log_prob = False

    noise: int = MISSING
    shared: bool = MISSING
    power: float = MISSING
    learn_normaliser: bool = MISSING

    def __post_init__(self) -> None:
        require_whole("output.noise", self.noise)
        require(0 <= self.power <= 2, "output.power", self.power, "from 0 (uniform) to 2")

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> NCELoss:
        """The layer, with sparse gradients. Raises UserError for more noise words than there are words."""
        require_at_most_words("noise", self.noise, len(counts))
        return NCELoss(
            dim,
            counts,
            vectors,
            noise=self.noise,
            shared=self.shared,
            power=self.power,
            learn_normaliser=self.learn_normaliser,
            sparse=True,
        )


class NCELoss(WordScores):
    """Tells the word of the text from k noise words (Gutmann & Hyvärinen 2010; Mnih & Teh 2012, eq. 8 to 10).

    J = -log sigma(s_y - log k q_y) - sum over the noise words of log sigma(log k q_w - s_w), with
    s_w = b_w + u_w . h - log Z(h) and q the distribution of the noise. log Z is fixed to 0, or learned
    (learn_normaliser) as an affine function of h. b starts at the log unigram probabilities, whose sum is 1. The work
    of a step does not depend on O. log_prob and log_dist are exact, by the softmax of the scores.
    """

    self_normalised = True

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
        """dim: D. counts: `[O]` of the words in train, for b and q.

        vectors: embeddings `[O or more, D]` to share as the u_w; None for vectors of the layer itself. noise: k.
        shared: the same noise words for the whole batch, instead of k for each example. power: of the unigram
        distribution that noise comes from. sparse: whether the gradients of u and b are sparse. Raises ValueError for
        k below 1 or above O, and for counts and vectors that do not fit.
        """
        counts = require_counts("NCELoss: counts", counts)
        super().__init__(dim, counts, vectors, sparse=sparse)
        if not isinstance(noise, int) or not 1 <= noise <= len(counts):
            raise ValueError(f"noise={noise}: from 1 to {len(counts)}, the words there are")
        self.noise, self.shared = noise, shared
        self.table = Noise(noise_distribution(counts, power))
        log_kq = self.table.log_q + math.log(noise)
        self.register_buffer("log_kq", log_kq.to(torch.get_default_dtype()), persistent=False)
        self.log_kq: Tensor
        self.register_buffer("signs", torch.tensor([1.0] + [-1.0] * noise), persistent=False)  # of the target, of noise
        self.signs: Tensor
        self.normaliser = nn.Linear(dim, 1) if learn_normaliser else None
        if self.normaliser is not None:
            nn.init.zeros_(self.normaliser.weight)
            nn.init.zeros_(self.normaliser.bias)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean of J in nats over hidden `[B, D]` and targets `[B]`, a number; it is not -log p.

        Noise comes from torch's random state.
        """
        noise = self.table.draw(self.noise) if self.shared else self.table.draw(len(y), self.noise)
        return self._loss_with(h, y, noise)

    @takes_words(empty=False)
    def loss_with(self, h: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """Mean of J with given noise words, int64: `[k]` for the whole batch or `[B, k]`."""
        shapes = (("k",), (len(h), "k"))
        return self._loss_with(h, y, require_ids(self, ".loss_with: noise", noise, shapes, self.word_count, h))

    def _loss_with(self, h: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        if not (on_cpu(h) or self.sparse or self.normaliser):
            offset = self.bias - self.log_kq
            if noise.dim() == 1:
                return noise_loss(h, self.vectors, offset, y, noise)
            scores = own_scores(h, self.vectors, offset, torch.cat([y[:, None], noise], 1))
            return log_decisions(scores, self.signs).sum() / -len(y)
        if noise.dim() == 1:
            weights = self.vectors, self.bias, self.log_kq
            real, fake = own_and_shared_scores(h, *weights, y, noise, sparse=self.sparse)  # [B], [B, k]
        else:
            pairs = pairs_of(torch.cat([y[:, None], noise], 1))
            both = row_scores(h, self.vectors, self.bias, pairs, sparse=self.sparse) - self.log_kq[pairs.rows]
            real, fake = both.view(len(y), -1)[:, 0], both.view(len(y), -1)[:, 1:]
        if self.normaliser is not None:
            log_z = self.normaliser(h)  # [B, 1]
            real, fake = real - log_z[:, 0], fake - log_z
        one = torch.ones(1, dtype=torch.int32, device=h.device)
        return (logistic_loss(real, one) + logistic_loss(fake, -one)) / len(y)

    @torch.no_grad()
    def unnormalised(self, h: Tensor, y: Tensor) -> Tensor:
        """s_y of words y `[B]` after hidden `[B, D]`, `[B]` in float64: near log p(y|h), as exp(s) sums to about 1."""
        scores = self.scores(h, y).double()
        return scores if self.normaliser is None else scores - self.normaliser(h)[:, 0].double()

    @torch.no_grad()
    def trained_log_z(self, h: Tensor) -> Tensor:
        """log-sum-exp of s over all words, `[B]` in float64, after hidden `[B, D]`: 0 where the scores are log p."""
        log_z = self.log_z(h)
        return log_z if self.normaliser is None else log_z - self.normaliser(h)[:, 0].double()
