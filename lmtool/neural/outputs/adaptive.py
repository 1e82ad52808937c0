"""The adaptive softmax as an output layer: torch's own, asked like the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from lmtool.neural.outputs.word_scores import log_unigram


def default_cutoffs(outputs: int) -> list[int]:
    """Where the head and the first tail end: about 20 and 50 roots of the vocabulary, 2,000 and 5,000 of 10,000."""
    root = math.sqrt(outputs)
    found = sorted(
        {max(1, min(round(factor * root), round(share * outputs))) for factor, share in ((20, 0.2), (50, 0.5))}
    )
    return [cutoff for cutoff in found if cutoff < outputs]


class AdaptiveSoftmax(nn.Module):
    """The commonest words in a head, the others in tails behind narrower projections (Grave et al. 2017).

    Words are numbered by frequency, commonest first. counts: `[O]`, to start the head's bias. cutoffs: where the head
    and each tail but the last end, ascending; None for default_cutoffs. div_value: each tail's dimension is that of
    the one before divided by it. Raises ValueError for cutoffs that are not ascending between 1 and O-1, and for
    tails without dimensions.
    """

    sparse = False

    def __init__(
        self, dim: int, counts: Tensor, *, cutoffs: Sequence[int] | None = None, div_value: float = 4.0
    ) -> None:
        super().__init__()
        outputs = len(counts)
        ends = list(cutoffs) if cutoffs is not None else default_cutoffs(outputs)
        if not ends or ends != sorted(set(ends)) or ends[0] < 1 or ends[-1] >= outputs:
            raise ValueError(f"cutoffs={ends}: ascending, from 1 to {outputs - 1}")
        if dim // div_value ** len(ends) < 1:
            most = dim ** (1 / len(ends))
            raise ValueError(f"div_value={div_value}: at most {most:.3g}, or the last tail's vectors have no number")
        self.layer = nn.AdaptiveLogSoftmaxWithLoss(dim, outputs, ends, div_value=div_value, head_bias=True)
        tails = [counts[first:last].sum()[None] for first, last in zip(ends, [*ends[1:], outputs], strict=True)]
        with torch.no_grad():
            self.layer.head.bias.copy_(log_unigram(torch.cat([counts[: ends[0]], *tails])))

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`."""
        loss: Tensor = self.layer(h, y).loss
        return loss

    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64."""
        with torch.no_grad():
            dist: Tensor = self.layer.log_prob(h).double()
            # float32 inside: the whole is brought to one again.
            return dist - dist.logsumexp(1, keepdim=True)

    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64; y `[B]` or `[B, K]`, as the result."""
        return self.log_dist(h).gather(1, y.reshape(len(y), -1)).reshape(y.shape)
