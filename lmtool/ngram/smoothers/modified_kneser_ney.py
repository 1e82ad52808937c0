r"""Modified Kneser-Ney smoothing: Kneser-Ney with a discount each for counts of one, of two, and of three or more.

.. math::

    p(w|h) &= \frac{\max(a(hw) - D(a(hw)), 0)}{a(h\,\bullet)} + \gamma(h)\,p(w|h') \\
    \gamma(h) &= \frac{D_1 N_1(h\,\bullet) + D_2 N_2(h\,\bullet) + D_{3+} N_{3+}(h\,\bullet)}{a(h\,\bullet)} \\
    D_r &= r - (r + 1)\,Y\,\frac{n_{r+1}}{n_r} \quad (r = 1, 2, 3) \qquad Y = \frac{n_1}{n_1 + 2 n_2}

a is the count in the highest order and for n-grams that begin with `<s>`; below, it is the number of distinct words
that precede the n-gram (Kneser & Ney 1995). :math:`a(h\,\bullet)` is its sum over the words after h,
:math:`N_r(h\,\bullet)` the number of them with a = r, n_r the number of n-grams of the order with a = r; D(0) = 0, and
D_3 is that of all larger a. Below the interpolated unigrams is 1/V for each of V types: the words that can be
predicted and one unknown type, which is `<unk>` where the text has no `<unk>` of its own, and else outside the
vocabulary. Without `interpolate` the second term is for words not seen after h alone, its weight being such that the
probabilities sum to one (Katz 1987).

Source: Chen & Goodman (1998), "An empirical study of smoothing techniques for language modeling", Harvard TR-10-98,
    *Modified Kneser-Ney Smoothing*; as KenLM estimates it (Heafield, Pouzyrevsky, Clark & Koehn 2013, ACL).
Complexity: O(N) to estimate the N n-grams of all orders, three discounts for each order; tuned, O(n T) for each
    evaluation of the likelihood of T held-out tokens, some dozens by L-BFGS; p(w|h) as of `model=ngram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, is_number, require
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.smoothers.base import TUNED, Contexts, Counting, Form, Smoother
from lmtool.system.arrays import FloatArray, IntArray

FALLBACK = (0.5, 1.0, 1.5)  # D1, D2, D3+ where the counts of counts do not determine them; KenLM's --discount_fallback


@dataclass(slots=True)
class ModifiedKneserNeyConfig(SmootherConfig):
    """discounts: null (estimated), tuned on the split tune_on, or a list of [D1, D2, D3+] per order, 0 <= D_r <= r.

    interpolate: false to back off. like_kenlm: estimate discounts exactly as KenLM does.
    """

    discounts: Any = MISSING
    interpolate: bool = MISSING
    like_kenlm: bool = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        rule = "null, tuned, or [D1,D2,D3+] for each order, with 0 <= D_r <= r"
        triples = self.discounts if isinstance(self.discounts, list) and self.discounts else [None]
        for triple in triples if self.discounts not in (None, TUNED) else []:
            three = triple if isinstance(triple, list) and len(triple) == 3 else [None]
            valid = all(is_number(d, 0, k) for k, d in enumerate(three, start=1))
            require(valid, "smoother.discounts", self.discounts if triple is None else triple, rule)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Modified Kneser-Ney smoothing. Raises UserError where the number of triples is not the order."""
        return ModifiedKneserNey(
            order,
            discounts=None if self.discounts == TUNED else self.discounts,
            interpolate=self.interpolate,
            like_kenlm=self.like_kenlm,
        )

    def tuning_split(self) -> str | None:
        """tune_on where the discounts are tuned."""
        return self.tune_on if self.discounts == TUNED else None


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
        """discounts: [D1, D2, D3+] of orders 1 to n; None to estimate them. interpolate: False to back off.
        like_kenlm: estimate them from n_r as KenLM counts them, so that the models are equal.

        Raises UserError where the number of triples is not the order.
        """
        if discounts is not None and len(discounts) != order:
            raise UserError(f"smoother.discounts has {len(discounts)} triples: model.order={order} needs {order}")
        Smoother.__init__(self, order)
        self.form = Form.interpolated if interpolate else Form.backed_off
        self.unknown = interpolate
        self.like_kenlm = like_kenlm
        self.estimated = discounts is None
        if discounts is not None:
            self.values[:, 1:] = discounts

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        """D1, D2, D3+ of order k from its counts of counts n, unless they were given."""
        if self.estimated:
            self.values[k - 1, 1:] = estimate_discounts(n_kenlm if self.like_kenlm else n, k, self.notes)

    def numerator(self, k: int, a: Any) -> Any:
        """a - D(a), `[N]`."""
        discount = self.values[k - 1]
        return (a - discount[a.clip(max=3)]).clip(min=0)

    def weight(self, k: int, h: Contexts) -> Any:
        """(D1 N1(h.) + D2 N2(h.) + D3+ N3+(h.)) / a(h.), `[C]`."""
        _, d1, d2, d3 = self.values[k - 1]
        return (d1 * h.ones + d2 * h.twos + d3 * h.more) / h.total


def estimate_discounts(n: IntArray, k: int, notes: list[str]) -> FloatArray:
    """D1, D2, D3+ `[3]` of order k from its counts of counts n.

    FALLBACK, with a note, where one of n1 to n3 is 0 or a D_r falls out of [0, r], as on very small texts and on
    n-grams of letters, and as by KenLM's --discount_fallback.
    """
    if (n[1:4] > 0).all():
        y = n[1] / (n[1] + 2 * n[2])
        r = np.arange(1, 4)
        estimated: FloatArray = r - (r + 1) * y * n[2:5] / n[1:4]
        if (estimated >= 0).all() and (estimated <= r).all():
            return estimated
    notes.append(
        f"order {k}: the counts of counts n1..n4 = {', '.join(map(str, n[1:5]))} do not determine the discounts; "
        f"fallback D1, D2, D3+ = {', '.join(f'{d:g}' for d in FALLBACK)}"
    )
    return np.array(FALLBACK)
