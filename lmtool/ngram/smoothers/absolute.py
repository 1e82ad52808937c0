"""Absolute discounting (Ney, Essen & Kneser 1994; Chen & Goodman 1998, *Absolute Discounting*).

    p(w|h) = max(c(hw) - D, 0) / c(h.) + D N1+(h.) / c(h.) p(w|h')
    D = n1 / (n1 + 2 n2)

c counts occurrences in every order; the unigrams are interpolated with the uniform distribution over the words that can
be predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import Counting, Smoother
from lmtool.ngram.smoothers.one_discount import OneDiscount, OneDiscountConfig


@dataclass(slots=True)
class AbsoluteConfig(OneDiscountConfig):
    """The settings of OneDiscountConfig."""

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Absolute discounting. Raises UserError where the number of discounts is not the order."""
        return Absolute(order, discounts=self.given_discounts(order), interpolate=self.interpolate)


class Absolute(OneDiscount):
    """values: `[n, 1]`, D of each order."""

    counting = Counting.occurrences
