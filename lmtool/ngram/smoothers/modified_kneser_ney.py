"""Modified Kneser-Ney smoothing (Chen & Goodman 1998, section 3).

    p(w|h) = (a(hw) - D(a(hw))) / a(h.) + weight(h) p(w|h')                                      (their eq. 24)
    weight(h) = (D1 N1(h.) + D2 N2(h.) + D3+ N3+(h.)) / a(h.)                                     (eq. 26)

a is the count in the highest order and for n-grams that begin with `<s>`; below it is the number of distinct words
that stand before the n-gram (Kneser & Ney 1995). a(h.) sums it over the words after h, N_r(h.) counts those with
a = r. h' is h without its first word; the unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.estimate import Contexts, Counting, Form, Smoother

# Used where a text is too small or too odd to estimate discounts from.
FALLBACK = (0.5, 1.0, 1.5)


class ModifiedKneserNey(Smoother):
    """values: `[n, 4]`, D(0) = 0, D1, D2 and D3+ of each order."""

    counting = Counting.continuations
    low, high = (0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 2.0, 3.0)

    def __init__(
        self,
        order: int,
        *,
        discounts: list[list[float]] | None = None,
        interpolate: bool = True,
        like_kenlm: bool = True,
    ) -> None:
        """discounts: [D1, D2, D3+] of each order from 1 to n; None to estimate them. like_kenlm: estimate
        them as KenLM does, which misses one unigram, so that the models are equal.

        Raises UserError where the given discounts are not as many as the orders.
        """
        if discounts is not None and len(discounts) != order:
            raise UserError(f"smoother.discounts: {len(discounts)} triples given, order {order} needs {order}")
        Smoother.__init__(self, order)
        self.form = Form.interpolated if interpolate else Form.backed_off
        self.unknown = interpolate
        self.like_kenlm = like_kenlm
        self.estimated = discounts is None
        if discounts is not None:
            self.values[:, 1:] = discounts

    def fit(self, k: int, n: IntArray, newest: int) -> None:
        """D of order k from its counts of counts, unless they were given."""
        if self.estimated:
            n = n.copy()
            if self.like_kenlm and newest:
                # KenLM never counts the last unigram of its own order, the word that was first seen last.
                n[min(newest, len(n) - 1)] -= 1
            self.values[k - 1, 1:] = estimate_discounts(n, k, self.notes)

    def kept(self, k: int, a: Any) -> Any:
        """a - D(a)."""
        discount = self.values[k - 1]
        return (a - discount[a.clip(max=3)]).clip(min=0)

    def weight(self, k: int, h: Contexts) -> Any:
        """Equation 26."""
        _, d1, d2, d3 = self.values[k - 1]
        return (d1 * h.ones + d2 * h.twos + d3 * h.more) / h.total


def estimate_discounts(n: IntArray, k: int, notes: list[str]) -> FloatArray:
    """D1, D2, D3+ from the counts of counts (Chen & Goodman 1998, eq. 25).

    Where one of n_1 to n_4 is 0 or a discount falls out of [0, r], as on very small texts and on n-grams of
    letters, FALLBACK is used for the order and a note says so.
    """
    if (n[1:5] > 0).all():
        y = n[1] / (n[1] + 2 * n[2])
        r = np.arange(1, 4)
        estimated: FloatArray = r - (r + 1) * y * n[2:5] / n[1:4]
        if (estimated >= 0).all() and (estimated <= r).all():
            return estimated
    notes.append(
        f"order {k}: counts of counts {', '.join(map(str, n[1:5]))} give no discounts, "
        f"{', '.join(map(str, FALLBACK))} are used"
    )
    return np.array(FALLBACK)
