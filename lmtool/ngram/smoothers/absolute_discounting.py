"""Smoothers that subtract discounts from counts: absolute discounting and (modified) Kneser-Ney."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, are_numbers, field_rules, is_number, require, setting
from lmtool.ngram.smoothers.base import TUNED, Combination, Contexts, Counting, Smoother, add_note, values_of_orders

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.system.arrays import IntArray

FALLBACK_DISCOUNT = 0.75  # D if the counts of counts do not determine it, as on very small texts
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)  # D1, D2, D3+ in that case; KenLM's --discount_fallback


@dataclass(slots=True)
class AbsoluteConfig(SmootherConfig):
    r"""Absolute discounting: one discount is subtracted from every count of an order.

    .. math::

        p(w|h) &= \frac{\max(c(hw) - D, 0)}{c(h\,\bullet)} + \frac{D\,N_{1+}(h\,\bullet)}{c(h\,\bullet)}\,p(w|h') \\
        D &= \frac{n_1}{n_1 + 2 n_2}

    c counts occurrences in every order, :math:`N_{1+}(h\,\bullet)` is the number of distinct words after h, n_r the
    number of n-grams of the order with count r; the unigrams are interpolated with the uniform distribution over the
    words that can be predicted. Without `interpolate` the second term is only for words not seen after h, its weight
    being such that the probabilities sum to one (Katz 1987).

    Source: Ney, Essen & Kneser (1994), "On structuring probabilistic dependences in stochastic language modeling",
        Computer Speech & Language 8; as in Chen & Goodman (1998), *Absolute Discounting*.
    Complexity: O(N) to estimate the N n-grams of all orders, one discount for each order; p(w|h) as of `model=ngram`.
    """

    kind: str = "absolute"
    discounts: Any = setting(said="null, tuned, a number from 0 to 1, or a list of one per order")
    interpolate: bool = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        given = are_numbers(self.discounts, 0, 1) or is_number(self.discounts, 0, 1)
        valid = self.discounts in (None, TUNED) or given
        require(valid, "smoother.discounts", self.discounts, field_rules(type(self))["discounts"].said)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return Absolute(order, discounts=self.discounts, interpolate=self.interpolate)


class Absolute(Smoother):
    """values: `[n, 1]`, D of each order. per_order: number of discounts."""

    bounds: Mapping[str, tuple[float, float]] = MappingProxyType({"discount": (0.0, 1.0)})
    per_order = 1

    def __init__(self, order: int, *, discounts: Any = None, interpolate: bool = True) -> None:
        """discounts: one for all orders or a list of one per order, each a number or, with several discounts, a list of
        them; None or TUNED to estimate them. interpolate: False to back off.
        """
        Smoother.__init__(self, order)
        self.combination = Combination.interpolated if interpolate else Combination.backed_off
        self.unknown = interpolate and self.counting is Counting.continuations
        self.estimated = discounts in (None, TUNED)
        if not self.estimated:
            for k, discount in enumerate(values_of_orders("smoother.discounts", discounts, order)):
                self.values[k, -self.per_order :] = discount

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        if self.estimated:
            self.values[k - 1, 0] = estimate_discount(n, k, self.notes_on_values)

    def numerator(self, k: int, a: Any) -> Any:
        """Return max(a - D, 0), `[N]`."""
        return (a - self.values[k - 1, 0]).clip(min=0)

    def weight(self, k: int, h: Contexts) -> Any:
        """Return D N1+(h.) / a(h.), `[C]`: the share that was subtracted, since D is at most 1."""
        return self.values[k - 1, 0] * h.types / h.total


def estimate_discount(n: IntArray, k: int, notes: list[str], name: str = "D") -> float:
    """Return D of order k from its counts of counts n; if n1 or n2 is 0, FALLBACK_DISCOUNT, with a note on `name`."""
    if n[1] > 0 and n[2] > 0:
        return float(n[1] / (n[1] + 2 * n[2]))
    text = "the counts of counts do not determine the discount, as n1 or n2 is 0"
    add_note(notes, k, f"{text}; fallback {name} = {FALLBACK_DISCOUNT}")
    return FALLBACK_DISCOUNT


@dataclass(slots=True)
class KneserNeyConfig(AbsoluteConfig):
    r"""Kneser-Ney smoothing, one discount per order: lower orders count the words before an n-gram, not occurrences.

    .. math::

        p(w|h) &= \frac{\max(a(hw) - D, 0)}{a(h\,\bullet)} + \frac{D\,N_{1+}(h\,\bullet)}{a(h\,\bullet)}\,p(w|h') \\
        a(hw) &= \begin{cases} c(hw) & \text{in the highest order} \\ N_{1+}(\bullet\,hw) & \text{below} \end{cases} \\
        D &= \frac{n_1}{n_1 + 2 n_2}

    a is the count for n-grams that begin with `<s>`, too; n_r is the number of n-grams of the order with a = r. Below
    the interpolated unigrams is 1/V for each of V types: the words that can be predicted and one unknown type, which is
    `<unk>` if the text has no `<unk>`, and else outside the vocabulary. Without `interpolate` the second term is only
    for words not seen after h, its weight being such that the probabilities sum to one (Katz 1987).

    Source: Kneser & Ney (1995), "Improved backing-off for m-gram language modeling", ICASSP; interpolated as in Chen &
        Goodman (1998), *Kneser-Ney Smoothing*; D of Ney, Essen & Kneser (1994).
    Complexity: O(N) to estimate the N n-grams of all orders, one discount for each order; p(w|h) as of `model=ngram`.
    """

    kind: str = "kneser_ney"

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return KneserNey(order, discounts=self.discounts, interpolate=self.interpolate)


class KneserNey(Absolute):
    """Absolute discounting of continuation counts; values: `[n, 1]`, D of each order."""

    counting = Counting.continuations


@dataclass(slots=True)
class ModifiedKneserNeyConfig(AbsoluteConfig):
    r"""Modified Kneser-Ney smoothing: Kneser-Ney with a discount each for counts of one, of two, and of three or more.

    .. math::

        p(w|h) &= \frac{\max(a(hw) - D(a(hw)), 0)}{a(h\,\bullet)} + \gamma(h)\,p(w|h') \\
        \gamma(h) &= \frac{D_1 N_1(h\,\bullet) + D_2 N_2(h\,\bullet) + D_{3+} N_{3+}(h\,\bullet)}{a(h\,\bullet)} \\
        D_r &= r - (r + 1)\,Y\,\frac{n_{r+1}}{n_r} \quad (r = 1, 2, 3) \qquad Y = \frac{n_1}{n_1 + 2 n_2}

    a is the count in the highest order and for n-grams that begin with `<s>`; in lower orders it is the number of
    distinct words that precede the n-gram (Kneser & Ney 1995). :math:`a(h\,\bullet)` is its sum over the words after h,
    :math:`N_r(h\,\bullet)` the number of them with a = r, n_r the number of n-grams of the order with a = r; D(0) = 0,
    and D_3 holds for all larger a. Below the interpolated unigrams is 1/V for each of V types: the words that can be
    predicted and one unknown type, which is `<unk>` if the text has no `<unk>`, and else outside the vocabulary.
    Without `interpolate` the second term is only for words not seen after h, its weight being such that the
    probabilities sum to one (Katz 1987).

    Source: Chen & Goodman (1998), "An empirical study of smoothing techniques for language modeling", Harvard TR-10-98,
        *Modified Kneser-Ney Smoothing*; as KenLM estimates it (Heafield, Pouzyrevsky, Clark & Koehn 2013, ACL).
    Complexity: O(N) to estimate the N n-grams of all orders, three discounts for each order; tuned, O(n T) for each
        evaluation of the likelihood of T held-out tokens, some dozens by L-BFGS; p(w|h) as of `model=ngram`.
    """

    kind: str = "modified_kneser_ney"
    discounts: Any = setting(
        said="null, tuned, [D1,D2,D3+] or a list of one such for each order, with 0 <= D_r <= r; one discount for all "
        "counts is smoother=kneser_ney"
    )
    kenlm_compatible: bool = MISSING

    def __post_init__(self) -> None:
        rule = field_rules(type(self))["discounts"].said
        triples = self.discounts if isinstance(self.discounts, list) and self.discounts else [None]
        triples = triples if isinstance(triples[0], list) else [self.discounts]
        for triple in triples if self.discounts not in (None, TUNED) else []:
            three = triple if isinstance(triple, list) and len(triple) == 3 else [None]
            valid = all(is_number(d, 0, k) for k, d in enumerate(three, start=1))
            require(valid, "smoother.discounts", triple, rule)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        discounts, kenlm = self.discounts, self.kenlm_compatible
        return ModifiedKneserNey(order, discounts=discounts, interpolate=self.interpolate, kenlm_compatible=kenlm)


class ModifiedKneserNey(KneserNey):
    """values: `[n, 4]`, D(0) = 0, D1, D2 and D3+ of each order."""

    bounds = MappingProxyType({"D0": (0.0, 0.0), "D1": (0.0, 1.0), "D2": (0.0, 2.0), "D3+": (0.0, 3.0)})
    per_order = 3

    def __init__(
        self,
        order: int,
        *,
        discounts: Any = None,
        interpolate: bool = True,
        kenlm_compatible: bool = True,
    ) -> None:
        """discounts: [D1, D2, D3+] for all orders or a list of one such per order; None or TUNED to estimate them.
        interpolate: False to back off. kenlm_compatible: estimate them from n_r as KenLM counts, so that the models are
        equal.
        """
        is_one = isinstance(discounts, list) and not isinstance(discounts[0], list)
        Absolute.__init__(self, order, discounts=[discounts] * order if is_one else discounts, interpolate=interpolate)
        self.kenlm_compatible = kenlm_compatible

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        if self.estimated:
            n = n_kenlm if self.kenlm_compatible else n
            self.values[k - 1, 1:] = estimate_discounts(n, k, self.notes_on_values)

    def numerator(self, k: int, a: Any) -> Any:
        """Return a - D(a), `[N]`."""
        discount = self.values[k - 1]
        return (a - discount[a.clip(max=3)]).clip(min=0)

    def weight(self, k: int, h: Contexts) -> Any:
        """Return (D1 N1(h.) + D2 N2(h.) + D3+ N3+(h.)) / a(h.), `[C]`."""
        _, d1, d2, d3 = self.values[k - 1]
        return (d1 * h.ones + d2 * h.twos + d3 * (h.types - h.ones - h.twos)) / h.total


def estimate_discounts(n: IntArray, k: int, notes: list[str]) -> tuple[float, ...]:
    """Return D1, D2, D3+ of order k from its counts of counts n.

    FALLBACK_DISCOUNTS, with a note, if one of n1 to n3 is 0 or a D_r is outside [0, r], as on very small texts and on
    n-grams of letters, and as by KenLM's --discount_fallback. From order 2 on, a note also says if less is left of a
    larger count.
    """
    if (n[1:4] > 0).all():
        y = n[1] / (n[1] + 2 * n[2])
        estimated = tuple(float(r - (r + 1) * y * n[r + 1] / n[r]) for r in (1, 2, 3))
        if all(0 <= d <= r for r, d in enumerate(estimated, start=1)):
            left = [r - d for r, d in enumerate(estimated, start=1)]
            if k > 1 and left != sorted(left):  # unigrams of a few thousand words are often so, without much effect
                effect = "an n-gram seen more often can be less probable, as on short text"
                add_note(notes, k, f"1-D1, 2-D2, 3-D3+ do not ascend: {effect}; compare smoother=witten_bell")
            return estimated
    text = "the counts of counts n1..n4 do not determine the discounts, as on short text; fallback D1, D2, D3+ = "
    add_note(notes, k, text + ", ".join(f"{d:g}" for d in FALLBACK_DISCOUNTS))
    return FALLBACK_DISCOUNTS
