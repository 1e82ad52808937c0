"""Pitman-Yor smoothing: interpolated Kneser-Ney with a strength for each order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, are_numbers, field_rules, is_number, require, setting
from lmtool.ngram.smoothers.absolute_discounting import estimate_discount
from lmtool.ngram.smoothers.base import TUNED, Contexts, Counting, Smoother, values_of_orders

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.counting.counts import Counts
    from lmtool.system.arrays import FloatArray, IntArray

MAX_STRENGTH = 1e3


class Tables(Enum):
    """Numbers of tables of an n-gram."""

    one = "one"
    expected = "expected"


@dataclass(slots=True)
class PitmanYorConfig(SmootherConfig):
    r"""Pitman-Yor smoothing: interpolated Kneser-Ney in which a strength, too, falls to the shorter context.

    .. math::

        p(w|h) &= \frac{c(hw) - d\,t(hw)}{\theta + c(h\,\bullet)}
            + \frac{\theta + d\,t(h\,\bullet)}{\theta + c(h\,\bullet)}\,p(w|h') \\
        c(hw) &= \sum_v t(vhw) \text{ below the highest order}

    The predictive probability of a hierarchical Pitman-Yor process, given the seating of its customers: c(hw)
    customers, the occurrences in the highest order and for n-grams that begin with `<s>`, sit at t(hw) tables, each of
    which is a customer of the shorter context. Below the unigrams is 1/V for each of V types, as for `kneser_ney`. The
    strength :math:`\theta` and the discount d of each order are tuned on held-out text, or given.

    With `tables=one`, t(hw) = 1; at :math:`\theta = 0` this is Kneser-Ney smoothing. With `tables=expected`, t(hw) is
    the expected number of tables of c(hw) customers by themselves, with strength 0 and the discount D that is estimated
    as for `kneser_ney`:

    .. math::

        t(hw) = \frac{\Gamma(c(hw) + D)}{\Gamma(c(hw))\,\Gamma(1 + D)}

    Source: Teh (2006), "A hierarchical Bayesian language model based on Pitman-Yor processes", ACL, eq. 5; here without
        sampling.
    Complexity: O(N) to estimate the N n-grams of all orders; O(n T) for each evaluation of the likelihood of T held-out
        tokens, of which L-BFGS takes some dozens; p(w|h) as of `model=ngram`.
    """

    kind: str = "pitman_yor"
    strengths: Any = setting(said="tuned, a number from 0 to 1000, or a list of one per order")
    discounts: Any = setting(said="null, a number from 0 to 1, or a list of one per order")
    tables: Tables = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        SmootherConfig.__post_init__(self)
        rules = field_rules(type(self))
        for name, high, word in (("strengths", MAX_STRENGTH, TUNED), ("discounts", 1, None)):
            value = getattr(self, name)
            given = are_numbers(value, 0, high) or is_number(value, 0, high)
            require(value == word or given, f"smoother.{name}", value, rules[name].said)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return PitmanYor(order, strengths=self.strengths, discounts=self.discounts, tables=self.tables)


class PitmanYor(Smoother):
    """values: `[n, 2]`, theta and d of each order."""

    unknown = True
    bounds = MappingProxyType({"strength": (0.0, MAX_STRENGTH), "discount": (0.0, 1.0)})

    def __init__(
        self, order: int, *, strengths: Any = TUNED, discounts: Any = None, tables: Tables = Tables.one
    ) -> None:
        """strengths, discounts: for all orders or a list of one per order; TUNED: 0 at first; None: Kneser-Ney's."""
        Smoother.__init__(self, order)
        self.counting = Counting.continuations if tables is Tables.one else Counting.tables
        self.estimated = discounts is None
        for column, (name, given) in enumerate({"strengths": strengths, "discounts": discounts}.items()):
            if given not in (None, TUNED):
                self.values[:, column] = values_of_orders(f"smoother.{name}", given, order)
        self.seating: dict[int, float] = {}  # D of each order, which tuning does not change

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        if self.estimated:
            self.values[k - 1, 1] = estimate_discount(n, k, self.notes_on_values)

    def tables(self, counts: Counts) -> list[FloatArray]:
        import numpy as np
        import torch

        customers_and_tables: list[FloatArray] = []
        for k in range(counts.order, 0, -1):
            customers = counts.count[k - 1][:].astype(float)
            if k < counts.order:
                start, suffix = counts.from_start(k), counts.suffix[k - 1][:]
                customers[:start] = np.bincount(suffix, customers_and_tables[-1][:, 1], len(customers))[:start]
            customers[counts.bos if k == 1 else len(customers) :] = 0.0  # `<s>`, the last word, is never predicted
            if k not in self.seating:
                n = np.bincount((customers + 1e-6).astype(np.int64).clip(max=3), minlength=3)
                self.seating[k] = estimate_discount(n, k, self.notes, "D of the tables")
                if self.estimated:
                    self.values[k - 1, 1] = self.seating[k]
            c, one = torch.from_numpy(customers), torch.ones(1, dtype=torch.float64)
            gamma, d = torch.lgamma, self.seating[k]
            expected = (gamma(c + d) - gamma(c) - gamma(one + d)).exp().numpy()  # 0 if c is 0
            customers_and_tables.append(np.column_stack([customers, expected]))
        return customers_and_tables[::-1]

    def numerator(self, k: int, a: Any) -> Any:
        """Return c - d t, `[N]`."""
        customers, tables = (a[:, 0], a[:, 1]) if self.counting is Counting.tables else (a, 1)
        return (customers - self.values[k - 1, 1] * tables).clip(min=0)

    def denominator(self, k: int, h: Contexts) -> Any:
        """Return theta + c(h.), `[C]`."""
        return self.values[k - 1, 0] + h.total

    def weight(self, k: int, h: Contexts) -> Any:
        """Return (theta + d t(h.)) / (theta + c(h.)), `[C]`."""
        return (self.values[k - 1, 0] + self.values[k - 1, 1] * h.types) / self.denominator(k, h)
