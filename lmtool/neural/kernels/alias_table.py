"""Drawing words from a fixed distribution in constant time each: the alias method (Walker 1977, Vose 1991)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor


@njit(cache=True, nogil=True)
def _fill(scaled: Any, alias: Any) -> None:
    """Make places of height 1 of heights `scaled` `[W]` of mean 1: what is missing in one is lent by `alias`."""
    size = len(scaled)
    low, high = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    lows = highs = 0
    for word in range(size):
        alias[word] = word
        if scaled[word] < 1:
            low[lows] = word
            lows += 1
        else:
            high[highs] = word
            highs += 1
    while lows and highs:
        small, large = low[lows - 1], high[highs - 1]
        lows -= 1
        alias[small] = large
        scaled[large] -= 1 - scaled[small]
        if scaled[large] < 1:
            highs -= 1
            low[lows] = large
            lows += 1
    # What is left over differs from 1 by rounding alone.
    for k in range(lows):
        scaled[low[k]] = 1.0
    for k in range(highs):
        scaled[high[k]] = 1.0


@njit(cache=True, nogil=True)
def _draw(bits: Any, threshold: Any, alias: Any, words: Any) -> None:
    """A word for each of 63 random bits: the place from the upper ones, the height from the lower 31."""
    size = np.int64(len(threshold))
    for k in range(len(bits)):
        place = ((bits[k] >> 31) * size) >> 32
        height = (bits[k] & 0x7FFFFFFF) * (1.0 / (1 << 31))
        words[k] = place if height < threshold[place] else alias[place]


class AliasTable:
    """A distribution `[W]` to draw from.

    probability: 0 or more each, with a positive sum; need not sum to one. W at most 2^31.
    """

    def __init__(self, probability: Tensor) -> None:
        given = probability.detach().cpu().double().numpy()
        if not (given >= 0).all() or not 0 < given.sum() < np.inf:
            raise ValueError("probabilities must be finite, 0 or more, and not all 0")
        threshold, alias = given * (len(given) / given.sum()), np.empty(len(given), dtype=np.int64)
        _fill(threshold, alias)
        self.threshold, self.alias = torch.from_numpy(threshold), torch.from_numpy(alias)

    def draw(self, *shape: int, device: torch.device | None = None) -> Tensor:
        """Independent words of this shape, from torch's random state."""
        bits = torch.randint(0, (1 << 63) - 1, shape, dtype=torch.int64)
        words = torch.empty(shape, dtype=torch.int64)
        arrays = (tensor.numpy() for tensor in (bits.view(-1), self.threshold, self.alias, words.view(-1)))
        _draw(*arrays)
        return words if device is None else words.to(device)

    def draw_plain(self, *shape: int) -> Tensor:
        """The same words from the same random state, in tensor operations."""
        bits = torch.randint(0, (1 << 63) - 1, shape, dtype=torch.int64)
        place = ((bits >> 31) * len(self.threshold)) >> 32
        height = (bits & 0x7FFFFFFF).double() / (1 << 31)
        return torch.where(height < self.threshold[place], place, self.alias[place])
