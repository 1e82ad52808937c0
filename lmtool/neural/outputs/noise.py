"""The distribution that noise words and samples are drawn from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels.alias_table import AliasTable
from lmtool.neural.outputs.word_scores import log_unigram


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """log q `[O]` in float64: the unigram distribution of counts `[O]` to a power, normalised; power 0 is uniform."""
    return (power * log_unigram(counts)).log_softmax(0)


class Noise(nn.Module):
    """Words drawn from a fixed distribution over W of them: by the alias method on a CPU; on a GPU, from its own random
    state and without waiting for it, by search in the distribution function, in two operations.
    """

    def __init__(self, log_q: Tensor) -> None:
        """log_q: `[W]`, the logarithms of the probabilities."""
        super().__init__()
        self.table = AliasTable(log_q.exp())
        below = log_q.exp().double().cumsum(0)
        self.register_buffer("below", below / below[-1], persistent=False)
        self.below: Tensor

    def draw(self, *shape: int) -> Tensor:
        """Independent words of this shape, int64, on the device of this module."""
        if on_cpu(self.below):
            return self.table.draw(*shape)
        u = torch.rand(shape, dtype=torch.float64, device=self.below.device)
        return torch.searchsorted(self.below, u, right=True)  # u < 1, which is the last of them
