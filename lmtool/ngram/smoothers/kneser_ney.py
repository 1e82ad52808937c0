"""Kneser-Ney smoothing with one discount an order (Kneser & Ney 1995; interpolated: Chen & Goodman 1998, eq. 23).

    p(w|h) = max(a(hw) - D, 0) / a(h.) + D N1+(h.) / a(h.) p(w|h')
    D = n1 / (n1 + 2 n2)                                                                        (Ney et al. 1994)

a is as in modified Kneser-Ney; N1+(h.) is the number of different words after h.
"""

from __future__ import annotations

from typing import Any

from lmtool.errors import UserError
from lmtool.language_model import IntArray
from lmtool.ngram.estimate import Contexts, Counting, Form, Smoother

FALLBACK = 0.75  # used where a text is too small or too odd to estimate the discount from


class KneserNey(Smoother):
    """values: `[n, 1]`, D of each order."""

    counting = Counting.continuations
    low, high = (0.0,), (1.0,)

    def __init__(self, order: int, *, discounts: list[float] | None = None, interpolate: bool = True) -> None:
        """discounts: D of each order from 1 to n; None to estimate them.

        Raises UserError where the given discounts are not as many as the orders.
        """
        if discounts is not None and len(discounts) != order:
            raise UserError(f"smoother.discounts: {len(discounts)} numbers given, order {order} needs {order}")
        Smoother.__init__(self, order)
        self.form = Form.interpolated if interpolate else Form.backed_off
        self.unknown = interpolate
        self.estimated = discounts is None
        if discounts is not None:
            self.values[:, 0] = discounts

    def fit(self, k: int, n: IntArray, newest: int) -> None:
        """D of order k from its counts of counts, unless it was given."""
        if self.estimated:
            self.values[k - 1, 0] = estimate_discount(n, k, self.notes)

    def kept(self, k: int, a: Any) -> Any:
        """max(a - D, 0)"""
        return (a - self.values[k - 1, 0]).clip(min=0)

    def weight(self, k: int, h: Contexts) -> Any:
        """D N1+(h.) / a(h.); D is at most 1, so that it is what was taken off."""
        return self.values[k - 1, 0] * h.types / h.total


def estimate_discount(n: IntArray, k: int, notes: list[str]) -> float:
    """n1 / (n1 + 2 n2); FALLBACK, with a note, where there are no n-grams with a = 1 or none with a = 2."""
    if n[1] > 0 and n[2] > 0:
        return float(n[1] / (n[1] + 2 * n[2]))
    notes.append(f"order {k}: counts of counts {n[1]}, {n[2]} give no discount, {FALLBACK} is used")
    return FALLBACK
