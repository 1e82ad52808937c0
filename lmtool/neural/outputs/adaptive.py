r"""The adaptive softmax: the most frequent words in a head, the others in tails with vectors of smaller dimension.

.. math::

    p(w|h) = \begin{cases} p_0(w|h) & \text{if } w \text{ is in the head} \\
        p_0(i|h)\,p_i(w|h) & \text{if } w \text{ is in tail } i \end{cases}

p_0 is a softmax over the words of the head and one unit for each tail; p_i is a softmax over the words of tail i after
a linear map of h to dimension D / div_value^i. Computed by torch.nn.AdaptiveLogSoftmaxWithLoss.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, K words asked for.

Source: Grave, Joulin, Cissé, Grangier & Jégou (2017), "Efficient softmax approximation for GPUs", ICML.
Complexity: O(D O_0) for each example, with O_0 units of the head, and O(D_i (D + O_i)) more for a word of tail i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from lmtool.config.rules import is_number
from lmtool.neural.checks import require_counts, require_size
from lmtool.neural.outputs.base import OutputLayer
from lmtool.neural.outputs.softmax import log_unigram


def default_cutoffs(outputs: int) -> list[int]:
    """Return the ends of the head and the first tail: about 20 and 50 times the square root of the vocabulary size,
    e.g. 2,000 and 5,000 of 10,000 words, but at most 20 % and 50 % of it.
    """
    root = math.sqrt(outputs)
    ends = sorted(
        {max(1, min(round(factor * root), round(share * outputs))) for factor, share in ((20, 0.2), (50, 0.5))}
    )
    return [end for end in ends if end < outputs]


class AdaptiveSoftmax(OutputLayer):
    """The adaptive softmax: the most frequent words in a head, the others in tails behind narrower projections (Grave
    et al. 2017).

    Words are numbered by frequency, the most frequent first.

    >>> import torch
    >>> from lmtool.neural import AdaptiveSoftmax
    >>> layer = AdaptiveSoftmax(16, torch.arange(100, 0, -1), cutoffs=[20])
    >>> h, y = torch.randn(8, 16), torch.randint(100, (8,))
    >>> loss = layer(h, y)  # a scalar with gradients
    >>> layer.log_dist(h).exp().sum(dim=1).allclose(torch.ones(8).double())
    True
    """

    uses_all_parameters = False  # a batch may have no word of a tail

    def __init__(
        self, dim: int, counts: Tensor, *, cutoffs: Sequence[int] | None = None, div_value: float = 4.0
    ) -> None:
        """dim: D. counts: `[O]` of the words in train; the head's biases start at the unigram distribution.

        cutoffs: the ends of the head and of each tail except the last, ascending; None for default_cutoffs. div_value:
        ratio of the dimensions of consecutive tails, from 1 to 1000. Raises ValueError for cutoffs that do not ascend
        between 1 and O-1, for another div_value, for tails without a dimension, and for counts that are negative or
        not finite.
        """
        super().__init__()
        counts = require_counts("AdaptiveSoftmax: counts", counts)
        outputs = self.word_count = len(counts)
        dim = self.input_dim = require_size("AdaptiveSoftmax: dim", dim)
        ends = list(cutoffs) if cutoffs is not None else default_cutoffs(outputs)
        if not ends or ends != sorted({*ends}) or ends[0] < 1 or ends[-1] >= outputs:
            raise ValueError(f"cutoffs={ends}: must ascend from 1 to at most {outputs - 1}")
        if not is_number(div_value, 1, 1000):
            raise ValueError(f"div_value={div_value!r}: must be a number from 1 to 1000")
        if dim // div_value ** len(ends) < 1:
            limit = dim ** (1 / len(ends))
            raise ValueError(f"div_value={div_value}: must be at most {limit:.3g}, or the last tail has no dimension")
        self.layer = nn.AdaptiveLogSoftmaxWithLoss(dim, outputs, ends, div_value=div_value, head_bias=True)
        tails = [counts[first:last].sum()[None] for first, last in zip(ends, [*ends[1:], outputs], strict=True)]
        with torch.no_grad():
            self.layer.head.bias.copy_(log_unigram(torch.cat([counts[: ends[0]], *tails])))

    def reference(self) -> Tensor:
        return self.layer.head.weight

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        found = self.layer(h, y)
        loss: Tensor = -found.output if reduction == "none" else found.loss
        return loss

    def log_probs(self, h: Tensor) -> Tensor:
        head, size = self._head(h), self.layer.shortlist_size
        tails = [self._tail(h, i) + head[:, size + i, None] for i in range(len(self.layer.tail))]
        return torch.cat([head[:, :size], *tails], 1)

    def log_probs_of(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute log p of words `[B, K]` in float64, `[B, K]`; for K = 1 only by the head and the word's own tail."""
        if y.shape[1] != 1:
            return super().log_probs_of(h, y)
        head, size = self._head(h), self.layer.shortlist_size
        log_p = head.gather(1, y.clamp(max=size - 1))
        for i, (first, last) in enumerate(pairwise(self.layer.cutoffs)):
            rows = ((y[:, 0] >= first) & (y[:, 0] < last)).nonzero()[:, 0]
            log_p[rows] = head[rows, size + i, None] + self._tail(h[rows], i).gather(1, y[rows] - first)
        return log_p

    def _head(self, h: Tensor) -> Tensor:
        """Return log p of the words of the head, then of the tails, `[B, O_0]` in float64."""
        head: Tensor = self.layer.head(h)
        return head.double().log_softmax(1)

    def _tail(self, h: Tensor, i: int) -> Tensor:
        """Return log p of the words of tail i among themselves, `[B, O_i]` in float64."""
        tail: Tensor = self.layer.tail[i](h)
        return tail.double().log_softmax(1)
