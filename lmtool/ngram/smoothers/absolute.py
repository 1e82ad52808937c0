r"""Absolute discounting: the same number is subtracted from every count of an order.

.. math::

    p(w|h) &= \frac{\max(c(hw) - D, 0)}{c(h\,\bullet)} + \frac{D\,N_{1+}(h\,\bullet)}{c(h\,\bullet)}\,p(w|h') \\
    D &= \frac{n_1}{n_1 + 2 n_2}

c counts occurrences in every order, n_r is the number of n-grams of the order with count r; the unigrams are
interpolated with the uniform distribution over the words that can be predicted. Without `interpolate` the second term
is for words not seen after h alone, its weight being such that the probabilities sum to one (Katz 1987).

Source: Ney, Essen & Kneser (1994), "On structuring probabilistic dependences in stochastic language modelling",
    Computer Speech & Language 8; as in Chen & Goodman (1998), *Absolute Discounting*.
Complexity: O(N) to estimate the N n-grams of all orders, one discount for each order; p(w|h) as of `model=ngram`.
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
