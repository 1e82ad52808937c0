r"""The full softmax: every word has a score, and their exponentials are normalized.

.. math::

    p(w|h) = \frac{e^{b_w + u_w \cdot h}}{\sum_{v=1}^{O} e^{b_v + u_v \cdot h}}

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted.

Source: Bengio, Ducharme, Vincent & Jauvin (2003), "A neural probabilistic language model", JMLR 3, eq. 1.
Complexity: O(D O) for each example, in training and for a distribution; D O weights, which may be the embeddings.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural.outputs.word_scores import WordScores

NO_TARGET = -(1 << 63)  # cross_entropy would ignore targets of -100, which are an error here


class FullSoftmax(WordScores):
    """p(w|h) = exp(b_w + u_w . h) / Z (Bengio et al. 2003, eq. 1)."""

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None = None,
        *,
        precision: Precision | None = None,
    ) -> None:
        """dim: D. counts: `[O]` of the words in train; b starts at the log unigram probabilities.

        vectors: embeddings `[O or more, D]` to share as the u_w; None for vectors of the layer itself. precision: of
        the products of a training step; None for what use_precision sets. fp32 stands for the weights' own dtype, in
        which evaluation is. Raises ValueError for any other precision.
        """
        super().__init__(dim, counts, vectors)
        self._own_precision = precision is not None
        self.precision = Precision(precision or Precision.fp32)

    def use_precision(self, precision: Precision) -> None:
        """Set the precision of the products of a training step, unless the constructor was given one."""
        if not self._own_precision:
            self.precision = Precision(precision)

    def loss(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute the mean of -log p(y|h) in nats over hidden states `[B, D]` and targets `[B]`."""
        scores = F.linear(h, self.weight(), self.bias)  # [B, O]
        return F.cross_entropy(scores, y, ignore_index=NO_TARGET)
