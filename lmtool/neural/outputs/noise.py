"""The distribution that noise words and samples are drawn from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels.alias_table import AliasTable
from lmtool.neural.outputs.word_scores import log_unigram


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """log q `[O]` in float64: that of (counts + 0.5)^power, normalised, of counts `[O]`; power 0 is uniform."""
    return (power * log_unigram(counts)).log_softmax(0)


class Noise(nn.Module):
    """Words drawn from a fixed distribution over W of them: by the alias method on a CPU; on a GPU, from its own random
    state and without waiting for it, by search in the distribution function, in two operations.

    log_q: `[W]`, float64, of the exact probabilities of these draws, which are the same for both, for the correction in
    a loss; of 2^-63 for a word that is never drawn.
    """

    def __init__(self, log_q: Tensor) -> None:
        """log_q: `[W]`, the logarithms of the probabilities wanted."""
        super().__init__()
        self.table = AliasTable(log_q.exp())
        drawn = self.table.drawn
        self.log_q = torch.from_numpy(np.maximum(drawn, 1) / 2**63).log()
        below = np.minimum(drawn.cumsum(), 2**63 - 1).astype(np.int64)[:-1]  # of 2^63, those before the next word
        self.register_buffer("below", torch.from_numpy(below), persistent=False)
        self.below: Tensor

    def draw(self, *shape: int) -> Tensor:
        """Independent words of this shape, int64, on the device of this module."""
        if on_cpu(self.below):
            return self.table.draw(*shape)
        bits = torch.empty(shape, dtype=torch.int64, device=self.below.device).random_()  # of 63 bits, all values
        return torch.searchsorted(self.below, bits, right=True)
