"""Smoothers that subtract one discount per order from each count: absolute discounting and Kneser-Ney.

    p(w|h) = max(a(hw) - D, 0) / a(h.) + D N1+(h.) / a(h.) p(w|h')
    D = n1 / (n1 + 2 n2)                                                          (Ney, Essen & Kneser 1994)

N1+(h.) is the number of distinct words after h, n_r the number of n-grams of the order with a = r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, are_numbers, is_number, require
from lmtool.errors import UserError
from lmtool.ngram.smoothers.base import TUNED, Contexts, Form, Smoother
from lmtool.system.arrays import IntArray

FALLBACK = 0.75  # D where the counts of counts do not determine it, as on very small texts


@dataclass(slots=True)
class OneDiscountConfig(SmootherConfig):
    """discounts: null (estimated), tuned on the split tune_on, one number from 0 to 1, or a list of one per order.

    interpolate: false to back off.
    """

    discounts: Any = MISSING
    interpolate: bool = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        given = are_numbers(self.discounts, 0, 1) or is_number(self.discounts, 0, 1)
        valid = self.discounts in (None, TUNED) or given
        rule = "null, tuned, a number from 0 to 1, or a list of one per order"
        require(valid, "smoother.discounts", self.discounts, rule)

    def given_discounts(self, order: int) -> list[float] | None:
        """The discounts of orders 1 to `order`; None where they are estimated or tuned."""
        if self.discounts is None or self.discounts == TUNED:
            return None
        return self.discounts if isinstance(self.discounts, list) else [float(self.discounts)] * order

    def tuning_split(self) -> str | None:
        """tune_on where the discounts are tuned."""
        return self.tune_on if self.discounts == TUNED else None


class OneDiscount(Smoother):
    """values: `[n, 1]`, D of each order."""

    low, high = (0.0,), (1.0,)

    def __init__(self, order: int, *, discounts: list[float] | None = None, interpolate: bool = True) -> None:
        """discounts: D of orders 1 to n; None to estimate them. interpolate: False to back off.

        Raises UserError where the number of discounts is not the order.
        """
        if discounts is not None and len(discounts) != order:
            raise UserError(f"smoother.discounts has {len(discounts)} numbers: model.order={order} needs {order}")
        Smoother.__init__(self, order)
        self.form = Form.interpolated if interpolate else Form.backed_off
        self.estimated = discounts is None
        if discounts is not None:
            self.values[:, 0] = discounts

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        """D of order k from its counts of counts n, unless it was given."""
        if self.estimated:
            self.values[k - 1, 0] = estimate_discount(n, k, self.notes)

    def numerator(self, k: int, a: Any) -> Any:
        """max(a - D, 0), `[N]`."""
        return (a - self.values[k - 1, 0]).clip(min=0)

    def weight(self, k: int, h: Contexts) -> Any:
        """D N1+(h.) / a(h.), `[C]`: what was subtracted, since D is at most 1."""
        return self.values[k - 1, 0] * h.types / h.total


def estimate_discount(n: IntArray, k: int, notes: list[str]) -> float:
    """D of order k from its counts of counts n; FALLBACK, with a note, where n1 or n2 is 0."""
    if n[1] > 0 and n[2] > 0:
        return float(n[1] / (n[1] + 2 * n[2]))
    notes.append(
        f"order {k}: the counts of counts n1, n2 = {n[1]}, {n[2]} do not determine the discount; "
        f"fallback D = {FALLBACK}"
    )
    return FALLBACK
