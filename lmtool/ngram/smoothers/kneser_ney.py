"""Kneser-Ney smoothing with one discount per order (Kneser & Ney 1995; interpolated: Chen & Goodman 1998,
*Kneser-Ney Smoothing*).

    p(w|h) = max(a(hw) - D, 0) / a(h.) + D N1+(h.) / a(h.) p(w|h')
    D = n1 / (n1 + 2 n2)                                                          (Ney, Essen & Kneser 1994)

a is the count in the highest order and for n-grams that begin with `<s>`; below, it is the number of distinct words
that precede the n-gram. Below the interpolated unigrams is 1/V for each of V types: the words that can be predicted
and one unknown type, which is `<unk>` where the text has no `<unk>` of its own, and else outside the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import Counting, Smoother
from lmtool.ngram.smoothers.one_discount import OneDiscount, OneDiscountConfig


@dataclass(slots=True)
class KneserNeyConfig(OneDiscountConfig):
    """The settings of OneDiscountConfig."""

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Kneser-Ney smoothing. Raises UserError where the number of discounts is not the order."""
        return KneserNey(order, discounts=self.given_discounts(order), interpolate=self.interpolate)


class KneserNey(OneDiscount):
    """values: `[n, 1]`, D of each order."""

    counting = Counting.continuations

    def __init__(self, order: int, *, discounts: list[float] | None = None, interpolate: bool = True) -> None:
        """discounts: D of orders 1 to n; None to estimate them. interpolate: False to back off.

        Raises UserError where the number of discounts is not the order.
        """
        OneDiscount.__init__(self, order, discounts=discounts, interpolate=interpolate)
        self.unknown = interpolate
