r"""Sampled softmax: in training, a softmax over the target and k words drawn for the batch, each corrected by its q.

.. math::

    J = -\log \frac{e^{s_y} / q_y}{e^{s_y} / q_y + \sum_{j=1}^{k} e^{s_{w_j}} / q_{w_j}}
        \qquad s_w = b_w + u_w \cdot h \qquad w_j \sim q \propto \text{unigram}^{\text{power}}

The draws are independent, and one that equals the target stays in the sum. The fraction is then the posterior
probability that, of the k + 1 words, y is the one from the data, if p(w|h) = softmax(s) is the distribution of the
data: there the expected gradient is 0, at every k and q (the ranking objective of Ma & Collins 2018). Removing the
draws that equal y would bias it. Evaluation is exact: p(w|h) is the softmax of the scores.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, k samples.

Source: Bengio & Senecal (2008), "Adaptive importance sampling to accelerate training of a neural probabilistic
    language model", IEEE Transactions on Neural Networks 19; Jean, Cho, Memisevic & Bengio (2015), "On using very
    large target vocabulary for neural machine translation", ACL; Ma & Collins (2018), "Noise contrastive estimation
    and negative sampling for conditional models: consistency and statistical efficiency", EMNLP.
Complexity: O(D k) for each example in training, whatever O; O(D O) for exact probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.groups import OutputConfig
from lmtool.config.rules import MISSING, require, require_whole
from lmtool.neural.checks import require_counts, require_ids
from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels.row_losses import sampled_loss
from lmtool.neural.kernels.shared_rows import own_and_shared_scores
from lmtool.neural.outputs.base import require_at_most_words, takes_words
from lmtool.neural.outputs.noise import Noise, noise_distribution
from lmtool.neural.outputs.word_scores import WordScores
from lmtool.trees.tree import Tree


@dataclass(slots=True)
class SampledOutput(OutputConfig):
    """Softmax over sampled words (Jean et al. 2015); conf/output/sampled.yaml says what each setting does."""

    can_tie = True
    loss_is_log_prob = False

    samples: int = MISSING
    power: float = MISSING

    def __post_init__(self) -> None:
        require_whole("output.samples", self.samples)
        require(0 <= self.power <= 2, "output.power", self.power, "from 0 (uniform) to 2")

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> SampledSoftmax:
        """The layer, with sparse gradients. Raises UserError for more samples than there are words."""
        require_at_most_words("samples", self.samples, len(counts))
        return SampledSoftmax(dim, counts, vectors, samples=self.samples, power=self.power, sparse=True)


class SampledSoftmax(WordScores):
    """Cross-entropy over the target and k words drawn for the batch, each score less log q (Jean et al. 2015).

    q is the probability of a word to be drawn; draws that equal the target stay in the sum. The optimum is the
    distribution of the data at every k (Ma & Collins 2018). log_prob and log_dist are exact.
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
        """dim: D. counts: `[O]` of the words in train, for b and q.

        vectors: embeddings `[O or more, D]` to share as the u_w; None for vectors of the layer itself. samples: k.
        power: of the unigram distribution that they are drawn from. sparse: whether the gradients of u and b are
        sparse. Raises ValueError for k below 1 or above O, and for counts and vectors that do not fit.
        """
        counts = require_counts("SampledSoftmax: counts", counts)
        super().__init__(dim, counts, vectors, sparse=sparse)
        if not isinstance(samples, int) or not 1 <= samples <= len(counts):
            raise ValueError(f"samples={samples}: from 1 to {len(counts)}, the words there are")
        self.samples = samples
        self.table = Noise(noise_distribution(counts, power))
        self.register_buffer("log_q", self.table.log_q.to(torch.get_default_dtype()), persistent=False)
        self.log_q: Tensor

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean of the sampled cross-entropy in nats over hidden `[B, D]` and targets `[B]`, a number; it is not -log p.

        Samples come from torch's random state.
        """
        return self._loss_with(h, y, self.table.draw(self.samples))

    @takes_words(empty=False)
    def loss_with(self, h: Tensor, y: Tensor, samples: Tensor) -> Tensor:
        """The same with given samples `[k]`, int64."""
        return self._loss_with(h, y, require_ids(self, ".loss_with: samples", samples, (("k",),), self.word_count, h))

    def _loss_with(self, h: Tensor, y: Tensor, samples: Tensor) -> Tensor:
        if not (on_cpu(h) or self.sparse):
            return sampled_loss(h, self.vectors, self.bias - self.log_q, y, samples)
        weights = self.vectors, self.bias, self.log_q
        real, others = own_and_shared_scores(h, *weights, y, samples, sparse=self.sparse)  # [B], [B, k]
        return F.cross_entropy(torch.cat([real[:, None], others], 1), torch.zeros_like(y))
