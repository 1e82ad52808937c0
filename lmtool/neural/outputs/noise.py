"""The distribution that noise words and samples are drawn from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lmtool.neural.outputs.word_scores import log_unigram
from lmtool.system.alias_table import AliasTable


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """Return log q `[O]` in float64: that of (counts + 0.5)^power, normalised, of counts `[O]`; power 0 is uniform."""
    return (power * log_unigram(counts)).log_softmax(0)


class Noise:
    """Words drawn from a fixed distribution over W of them, by the alias method.

    log_q: `[W]`, float64, of the exact probabilities of these draws, for the correction in a loss; of 2^-63 for a word
    that is never drawn.
    """

    def __init__(self, log_q: Tensor) -> None:
        """log_q: `[W]`, the logarithms of the probabilities wanted."""
        self._table = AliasTable(log_q.exp().cpu().numpy())
        self.log_q = torch.from_numpy(np.maximum(self._table.drawn, 1) / 2**63).log()

    def draw(self, *shape: int) -> Tensor:
        """Draw independent words of this shape, int64 on the CPU, by torch's random state."""
        bits = torch.empty(shape, dtype=torch.int64).random_()  # of 63 bits, all values
        return torch.from_numpy(self._table.outcomes(bits.view(-1).numpy())).view(shape)
