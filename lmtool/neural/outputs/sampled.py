r"""Sampled softmax: in training, a softmax over the target and k words drawn for the batch, each corrected by its q.

.. math::

    J = -\log \frac{e^{s_y} / q_y}{e^{s_y} / q_y + \sum_{j=1}^{k} e^{s_{w_j}} / q_{w_j}}
        \qquad s_w = b_w + u_w \cdot h \qquad w_j \sim q \propto \text{unigram}^{\text{power}}

The draws are independent, and one that equals the target stays in the sum. The fraction is then the posterior
probability that, of the k + 1 words, y is the one from the data, if p(w|h) = softmax(s) is the distribution of the
data: there the expected gradient is 0, at every k and q (the ranking objective of Ma & Collins 2018). Removing the
draws that equal y would bias it. Evaluation is exact: p(w|h) is the softmax of the scores.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, k samples.

Source: Bengio & Senecal (2008), "Adaptive importance sampling to accelerate training of a neural probabilistic
    language model", IEEE Transactions on Neural Networks 19; Jean, Cho, Memisevic & Bengio (2015), "On using very
    large target vocabulary for neural machine translation", ACL; Ma & Collins (2018), "Noise contrastive estimation
    and negative sampling for conditional models: consistency and statistical efficiency", EMNLP.
Complexity: O(D k) for each example in training, whatever O; O(D O) for exact probabilities.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.outputs.nce import DrawnWords


class SampledSoftmax(DrawnWords):
    """Cross-entropy over the target and k words drawn for the batch, each score less log q (Jean et al. 2015).

    log_prob and log_dist are exact, as is the loss in eval mode.

    >>> import torch
    >>> from lmtool.neural import SampledSoftmax
    >>> layer = SampledSoftmax(16, torch.arange(100, 0, -1), samples=20)
    >>> h, y = torch.randn(8, 16), torch.randint(100, (8,))
    >>> loss = layer(h, y)  # a scalar with gradients
    >>> layer.log_dist(h).exp().sum(dim=1).allclose(torch.ones(8).double())
    True
    """

    log_q: Tensor

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
        power: exponent of the unigram distribution that they are drawn from. sparse: whether the gradients of u and b
        are sparse. Raises ValueError for k below 1 or above O, and for counts and vectors that do not fit.
        """
        super().__init__(dim, counts, vectors, name="samples", number=samples, power=power, sparse=sparse)
        self.samples = samples
        self.register_tensors(log_q=self.table.log_q.to(torch.get_default_dtype()))

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Compute J in nats for hidden states `[B, D]` and targets `[B]`; samples are drawn by torch."""
        return self.loss_of_draws(h, y, (self.samples,), reduction)

    def drawn_loss(self, h: Tensor, y: Tensor, draws: Tensor, reduction: str = "mean") -> Tensor:
        real, others = self.target_and_other_scores(h, y, draws)  # s_y [B], s_w [B, k]
        scores = torch.cat([(real - self.log_q[y])[:, None], others - self.log_q[draws]], 1)  # [B, 1 + k]
        return F.cross_entropy(scores, torch.zeros_like(y), reduction=reduction)
