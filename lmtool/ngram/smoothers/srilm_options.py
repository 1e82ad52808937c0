"""The smoother that the options of SRILM's ngram-count choose, order by order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmtool.config.rules import require
from lmtool.errors import UserError
from lmtool.ngram.smoothers.absolute_discounting import Absolute, KneserNey, ModifiedKneserNey
from lmtool.ngram.smoothers.base import Combination, Contexts, Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import AddedCounts, GoodTuring

if TYPE_CHECKING:
    from lmtool.system.arrays import IntArray


class PerOrder(Smoother):
    """Smoothers of orders 1 to n, each built for order n, of which each order uses its own. interpolated: whether each
    order is. min_counts: n-grams with smaller adjusted counts are estimated as if they had not been seen.
    """

    combination = Combination.seen_interpolated

    def __init__(self, smoothers: list[Smoother], interpolated: list[bool], min_counts: list[int]) -> None:
        Smoother.__init__(self, len(smoothers))
        self.smoothers, self.interpolated, self.min_counts = smoothers, interpolated, min_counts
        for smoother in smoothers:
            smoother.notes = smoother.notes_on_values = self.notes

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        self.smoothers[k - 1].fit(k, n, n_kenlm)

    def numerator(self, k: int, a: Any) -> Any:
        return self.smoothers[k - 1].numerator(k, a) * (a >= self.min_counts[k - 1])

    def denominator(self, k: int, h: Contexts) -> Any:
        return self.smoothers[k - 1].denominator(k, h)

    def weight(self, k: int, h: Contexts) -> Any:
        return self.smoothers[k - 1].weight(k, h) * self.interpolated[k - 1]


def srilm_smoother(given: dict[str, Any], order: int, types: int) -> PerOrder:
    """Return the smoother that the options choose. types: number of words that can be predicted."""
    orders = range(1, order + 1)
    return PerOrder(
        [_smoother_of_order(k, given, order, types) for k in orders],
        ["interpolate" in given or f"interpolate{k}" in given for k in orders],
        [max(1, given.get(f"gt{k}min", 1 if k < 3 else 2)) for k in orders],
    )


def _smoother_of_order(k: int, given: dict[str, Any], order: int, types: int) -> Smoother:
    method, value, names = "", 0.0, ("kndiscount", "ukndiscount", "wbdiscount", "cdiscount", "addsmooth")
    for suffix in ("", k):  # a method given for an order replaces that for all orders
        if len(found := [name for name in names if f"{name}{suffix}" in given]) > 1:
            raise UserError(f"ngram-count -{found[0]}{suffix} -{found[1]}{suffix}: give one of the two")
        method, value = (found[0], given[f"{found[0]}{suffix}"]) if found else (method, value)
    if method.endswith("kndiscount"):
        return KneserNey(order) if method[0] == "u" else ModifiedKneserNey(order, kenlm_compatible=False)
    if method == "wbdiscount":
        return WittenBell(order)
    if method == "cdiscount":
        require(0 <= value <= 1, f"ngram-count -cdiscount{k}", value, "a number from 0 to 1")
        return Absolute(order, discounts=value)
    if method == "addsmooth":
        require(value > 0, f"ngram-count -addsmooth{k}", value, "a number above 0")
        return AddedCounts(order, alpha=value, types=types)
    largest = given.get(f"gt{k}max", 1 if k == 1 else 7)
    require(0 <= largest <= 9, f"ngram-count -gt{k}max", largest, "a whole number from 0 to 9")
    return GoodTuring(order, gt_max=largest, gt_max_unigram=largest)
