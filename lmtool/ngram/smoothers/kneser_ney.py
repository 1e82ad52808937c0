r"""Kneser-Ney smoothing, one discount per order: lower orders count the words before an n-gram, not occurrences.

.. math::

    p(w|h) &= \frac{\max(a(hw) - D, 0)}{a(h\,\bullet)} + \frac{D\,N_{1+}(h\,\bullet)}{a(h\,\bullet)}\,p(w|h') \\
    a(hw) &= \begin{cases} c(hw) & \text{in the highest order} \\ N_{1+}(\bullet\,hw) & \text{below} \end{cases} \\
    D &= \frac{n_1}{n_1 + 2 n_2}

a is the count, too, for n-grams that begin with `<s>`; n_r is the number of n-grams of the order with a = r. Below the
interpolated unigrams is 1/V for each of V types: the words that can be predicted and one unknown type, which is
`<unk>` where the text has no `<unk>` of its own, and else outside the vocabulary. Without `interpolate` the second
term is for words not seen after h alone, its weight being such that the probabilities sum to one (Katz 1987).

Source: Kneser & Ney (1995), "Improved backing-off for m-gram language modeling", ICASSP; interpolated as in Chen &
    Goodman (1998), *Kneser-Ney Smoothing*; D of Ney, Essen & Kneser (1994).
Complexity: O(N) to estimate the N n-grams of all orders, one discount for each order; p(w|h) as of `model=ngram`.
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
