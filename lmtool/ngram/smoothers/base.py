"""The contract of smoothers: numerator, denominator and weight of the shorter context, from counts.

For an n-gram hw, its context h and the shorter context h' (h without its first word), the estimator
(lmtool.ngram.estimation.estimate) combines them order by order:

    interpolated   p(w|h) = numerator(hw) / denominator(h) + weight(h) p(w|h')
    backed off     p(w|h) = numerator(hw) / denominator(h) where hw was seen, else backoff(h) p(w|h')
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from lmtool.system.arrays import FloatArray, IntArray

LARGEST = 10  # counts of counts n_r are given to Smoother.fit for r up to this
TUNED = "tuned"  # the value of a setting whose parameters are tuned on held-out text


class Form(Enum):
    """How the estimates of a context and of the shorter one are combined."""

    interpolated = "interpolated"
    backed_off = "backed off"
    scores = "scores"  # backed off with the smoother's weight as it is, so that scores do not sum to one


class Counting(Enum):
    """What the adjusted count a(hw) of an n-gram is."""

    occurrences = "occurrences"  # c(hw): how often hw occurs
    # c(hw) in the highest order and for n-grams that begin with <s>, which have no left context; below, the number of
    # distinct words that precede hw (Kneser & Ney 1995).
    continuations = "continuations"
    # c(hw) in the highest order and for n-grams that begin with <s>; 0 below, so that lower orders have no influence.
    longest = "longest"


@dataclass(frozen=True, slots=True)
class Contexts:
    """Sums over the n-grams hw of each of C contexts h: float64 arrays `[C]`, or tensors when parameters are tuned.

    total: a(h.), the sum of a(hw) over w. ones, twos, more: N1(h.), N2(h.), N3+(h.), the number of words w with
    a(hw) = 1, = 2, >= 3.
    """

    total: Any
    ones: Any
    twos: Any
    more: Any

    @property
    def types(self) -> Any:
        """N1+(h.), the number of distinct words after h, `[C]`."""
        return self.ones + self.twos + self.more


class Smoother:
    """A smoother of n-grams of orders 1 to n: maximum likelihood, unless a subclass overrides it.

    Arguments named k are the order of hw, from 1 to n.

    form, counting: see there. unknown: whether the uniform distribution below the unigrams has an unknown type beside
    the words that can be predicted, where `<unk>` is itself a word of the text; its probability is that of each type
    outside the vocabulary. missing: log back-off weight, in nats, of contexts that were never seen. values: the
    parameters, float64 `[n, P]`, given, estimated by `fit` or tuned. low, high: bounds of the P parameters. notes: what
    the user should know about the estimation.
    """

    form = Form.interpolated
    counting = Counting.occurrences
    unknown = False
    missing = 0.0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __init__(self, order: int) -> None:
        """order: n."""
        self.values: Any = np.zeros((order, len(self.low)))
        self.notes: list[str] = []

    @property
    def normalised(self) -> bool:
        """Whether the estimates are probabilities, which sum to one over the words."""
        return self.form is not Form.scores

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        """Estimate the parameters of order k from its counts of counts, unless they were given.

        n: int64 `[LARGEST + 1]`, n[r] n-grams of the order have a = r. n_kenlm: the same as KenLM counts them, where
        one n-gram differs.
        """

    def numerator(self, k: int, a: Any) -> Any:
        """The discounted counts `[N]` of n-grams with adjusted counts a, int64 `[N]`; 0 where a is 0."""
        return a

    def denominator(self, k: int, h: Contexts) -> Any:
        """What the discounted counts after contexts h are divided by, `[C]`."""
        return h.total

    def weight(self, k: int, h: Contexts) -> Any:
        """The weight of the shorter context, `[C]`; not read by Form.backed_off, which normalises instead."""
        return 0.0 * h.total


class MergingSmoother(Smoother):
    """A smoother of the merged counts of several sources, by lmtool.ngram.estimation.merging: numerator, denominator
    and weight are not read.

    values: `[n, 4]`, D1, D2, D3 and D4 of each order. weights: float64 `[S]`, of the sources in their order, of sum 1;
    None for equal ones.
    """

    unknown = True
    low, high = (0.01, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)  # of D1 something is always left to words never seen

    def __init__(self, order: int) -> None:
        """order: n. Tuning begins with discounts of about those of modified Kneser-Ney."""
        Smoother.__init__(self, order)
        self.values[:] = 0.8, 0.5, 0.25, 0.15
        self.weights: FloatArray | None = None

    def weights_of(self, sources: list[str]) -> FloatArray:
        """The weights `[S]` of sources by their names."""
        return np.full(len(sources), 1.0 / len(sources)) if self.weights is None else self.weights
