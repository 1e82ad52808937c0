"""Draws of words from a fixed distribution in constant time each: the alias method (Walker 1977, Vose 1991)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.system.alias_table import alias_table


@njit(cache=True, nogil=True)
def _draw(bits: Any, threshold: Any, alias: Any, words: Any) -> None:
    """A word for each of 63 random bits: the place from the upper 32, the height from the lower 31."""
    size = np.int64(len(threshold))
    for k in range(len(bits)):
        place = ((bits[k] >> 31) * size) >> 32
        words[k] = place if bits[k] & 0x7FFFFFFF < threshold[place] else alias[place]


class AliasTable:
    """A distribution over W words to draw from.

    drawn: `[W]`, uint64, how many of the 2^63 values of the random bits give each word: its exact probability. It
    differs from that asked for by up to W / 2^32 of itself, as a place has a whole number of the 2^32 upper values, and
    by about 2^-31 / W, as a threshold is one of 2^31 heights.
    """

    def __init__(self, probability: Tensor) -> None:
        """probability: `[W]`, each 0 or more, with a positive sum, which need not be 1; W less than 2^31.

        Raises ValueError for other probabilities.
        """
        given = probability.detach().cpu().double().numpy()
        if not (given >= 0).all() or not 0 < given.sum() < np.inf:
            raise ValueError("probabilities must be finite, 0 or more, and not all 0")
        size = len(given)
        heights, alias = alias_table(given * (size / given.sum()))
        threshold = np.ceil(heights * (1 << 31)).astype(np.int64)  # as many heights are below it
        first = -((np.arange(size + 1) << 32) // -size)  # of the upper numbers, that of each place
        each, own = np.diff(first).astype(np.uint64), threshold.astype(np.uint64)
        self.drawn = each * own
        np.add.at(self.drawn, alias, each * ((1 << 31) - own))
        self.threshold, self.alias = torch.from_numpy(threshold), torch.from_numpy(alias)

    def draw(self, *shape: int) -> Tensor:
        """Independent words of this shape, int64 on the CPU, from torch's random state."""
        bits = torch.empty(shape, dtype=torch.int64).random_()  # of 63 bits, all values
        words = torch.empty(shape, dtype=torch.int64)
        arrays = (tensor.numpy() for tensor in (bits.view(-1), self.threshold, self.alias, words.view(-1)))
        _draw(*arrays)
        return words
