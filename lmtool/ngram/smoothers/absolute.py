"""Absolute discounting (Ney, Essen & Kneser 1994; Chen & Goodman 1998, eq. 18 to 20).

    p(w|h) = max(c(hw) - D, 0) / c(h.) + D N1+(h.) / c(h.) p(w|h')

Kneser-Ney without its counts of contexts: c is the count of occurrences in every order.
"""

from __future__ import annotations

from lmtool.ngram.estimate import Counting
from lmtool.ngram.smoothers.kneser_ney import KneserNey


class Absolute(KneserNey):
    """values: `[n, 1]`, D of each order, estimated as n1 / (n1 + 2 n2) unless given."""

    counting = Counting.occurrences

    def __init__(self, order: int, *, discounts: list[float] | None = None, interpolate: bool = True) -> None:
        """As KneserNey; the unigrams are interpolated with the uniform distribution over the known words alone."""
        KneserNey.__init__(self, order, discounts=discounts, interpolate=interpolate)
        self.unknown = False
