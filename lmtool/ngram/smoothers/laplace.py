"""Add-alpha smoothing (Lidstone 1920; alpha = 1: Laplace; Chen & Goodman 1998, eq. 9).

    p(w|h) = (c(hw) + alpha) / (c(h.) + alpha V)

with V the words that can be predicted. In the form of the back-off table: an n-gram of the full length is interpolated
with the uniform distribution, with the weight alpha V / (c(h.) + alpha V), and shorter ones have no say.
"""

from __future__ import annotations

from typing import Any

from lmtool.ngram.estimate import Contexts, Counting, Smoother


class Laplace(Smoother):
    """values: `[n, 1]`, alpha; only the last one is used."""

    counting = Counting.longest
    low, high = (1e-9,), (100.0,)

    def __init__(self, order: int, *, alpha: float, types: int) -> None:
        """types: V."""
        Smoother.__init__(self, order)
        self.values += alpha
        self.types = types

    def norm(self, k: int, h: Contexts) -> Any:
        """c(h.) + alpha V"""
        return h.total + self.values[-1, 0] * self.types

    def weight(self, k: int, h: Contexts) -> Any:
        """alpha V / (c(h.) + alpha V)"""
        return self.values[-1, 0] * self.types / self.norm(k, h)
