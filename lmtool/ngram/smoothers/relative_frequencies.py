"""Smoothers close to relative frequencies: maximum likelihood, additive, stupid backoff and Good-Turing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, setting
from lmtool.ngram.smoothers.base import MAX_R, TUNED, Combination, Contexts, Counting, Smoother, add_note

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.system.arrays import IntArray


@dataclass(slots=True)
class MleConfig(SmootherConfig):
    r"""Maximum likelihood: relative frequencies.

    .. math::

        p(w|h) = \frac{c(hw)}{c(h\,\bullet)}

    A word that does not follow a context in the training text has probability 0 after it. A context that does not occur
    there has no estimate: the shorter context is used.

    Source: Chen & Goodman (1998), "An empirical study of smoothing techniques for language modeling", Harvard TR-10-98,
        *Introduction*.
    Complexity: O(N) to estimate the N n-grams of all orders; p(w|h) as of `model=ngram`.
    """

    kind: str = "mle"

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return MaximumLikelihood(order)


class MaximumLikelihood(Smoother):
    """Numerator c(hw), denominator c(h.), weight 0; no parameters."""


@dataclass(slots=True)
class LaplaceConfig(SmootherConfig):
    r"""Additive smoothing: a constant is added to every count; Laplace's rule if it is one.

    .. math::

        p(w|h) = \frac{c(hw) + \alpha}{c(h\,\bullet) + \alpha V}

    V is the number of words that can be predicted. As a back-off table: n-grams of the full length are interpolated
    with the uniform distribution, with weight :math:`\alpha V / (c(h\,\bullet) + \alpha V)`; shorter ones have no
    influence.

    Source: Lidstone (1920), "Note on the general case of the Bayes-Laplace formula for inductive or a posteriori
        probabilities", Transactions of the Faculty of Actuaries 8; as in Chen & Goodman (1998), *Additive Smoothing*.
    Complexity: O(N) to estimate the N n-grams of all orders; p(w|h) as of `model=ngram`.
    """

    kind: str = "laplace"
    alpha: Any = setting(above=0, max=1e9, words=(TUNED,))
    tune_on: str = MISSING

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Return additive smoothing over all words of the vocabulary except `<s>`; tuning starts with alpha = 1."""
        alpha = 1.0 if self.alpha == TUNED else float(self.alpha)
        return Laplace(order, alpha=alpha, types=len(vocabulary) - 1)


class Laplace(Smoother):
    """values: `[n, 1]`, alpha of each order; only order n uses it."""

    counting = Counting.longest
    bounds = MappingProxyType({"alpha": (1e-9, 100.0)})

    def __init__(self, order: int, *, alpha: float, types: int) -> None:
        """types: V."""
        Smoother.__init__(self, order)
        self.values += alpha
        self.types = types

    def denominator(self, k: int, h: Contexts) -> Any:
        """Return c(h.) + alpha V, `[C]`."""
        return h.total + self.values[-1, 0] * self.types

    def weight(self, k: int, h: Contexts) -> Any:
        """Return alpha V / (c(h.) + alpha V), `[C]`."""
        return self.values[-1, 0] * self.types / self.denominator(k, h)


class AddedCounts(Laplace):
    """Numerator c(hw) + alpha of n-grams that were seen; others back off, as with SRILM's -addsmooth."""

    combination = Combination.backed_off
    counting = Counting.occurrences

    def numerator(self, k: int, a: Any) -> Any:
        return (a + self.values[-1, 0]) * (a > 0)

    def weight(self, k: int, h: Contexts) -> Any:
        """Return 0, `[C]`: SRILM does not interpolate added counts, with -interpolate either."""
        return 0.0 * h.total


@dataclass(slots=True)
class StupidBackoffConfig(SmootherConfig):
    r"""Stupid backoff: relative frequencies, and a factor for each step to a shorter context; not probabilities.

    .. math::

        S(w|h) = \begin{cases} c(hw) / c(h) & \text{if } c(hw) > 0 \\ \alpha\,S(w|h') & \text{otherwise} \end{cases}
        \qquad S(w) = \frac{c(w)}{\sum_v c(v)}

    The scores do not sum to one over the words, so that the exponential of their mean is not a perplexity.

    Source: Brants, Popat, Xu, Och & Dean (2007), "Large language models in machine translation", EMNLP, eq. 5.
    Complexity: O(N) to estimate the N n-grams of all orders; S(w|h) as p(w|h) of `model=ngram`.
    """

    kind: str = "stupid_backoff"
    alpha: float = setting(above=0, max=1)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return StupidBackoff(order, alpha=self.alpha)


class StupidBackoff(Smoother):
    """Numerator c(hw), denominator c(h.), which is c(h): every word except `</s>` is followed by another."""

    combination = Combination.scores

    def __init__(self, order: int, *, alpha: float) -> None:
        """alpha: the weight of the shorter context."""
        Smoother.__init__(self, order)
        self.alpha = alpha
        self.missing = math.log(alpha)
        self.notes = ["stupid backoff gives scores that do not sum to one: their perplexity is not comparable"]

    def weight(self, k: int, h: Contexts) -> Any:
        """Return alpha, `[C]`."""
        return self.alpha + 0.0 * h.total


@dataclass(slots=True)
class GoodTuringConfig(SmootherConfig):
    r"""Good-Turing discounting with Katz's back-off: small counts are discounted by their counts of counts.

    .. math::

        p(w|h) &= \begin{cases} d_r\,c(hw) / c(h\,\bullet) & \text{if } r = c(hw) > 0 \\
            \alpha(h)\,p(w|h') & \text{otherwise} \end{cases} \\
        d_r &= \frac{r^*/r - A}{1 - A} \text{ for } r \le k, \quad 1 \text{ above}
            \qquad r^* = (r + 1) \frac{n_{r+1}}{n_r} \qquad A = (k + 1) \frac{n_{k+1}}{n_1} \\
        \alpha(h) &= \frac{1 - \sum_{w:\,c(hw) > 0} p(w|h)}{1 - \sum_{w:\,c(hw) > 0} p(w|h')}

    n_r is the number of n-grams of the order with count r, k the setting `gt_max`, or `gt_max_unigram`. A count whose
    d_r is not above 0 and at most 1 is not discounted, and a note says so. If the counts of a context, unigrams
    included, leave nothing to unseen words, its denominator is increased by one until they do, as in SRILM.

    Source: Katz (1987), "Estimation of probabilities from sparse data for the language model component of a speech
        recognizer", IEEE TASSP 35; after Good (1953), Biometrika 40; as in Chen & Goodman (1998), *Katz Smoothing*.
    Complexity: O(N) to estimate the N n-grams of all orders, k ratios for each order; p(w|h) as of `model=ngram`.
    """

    kind: str = "good_turing"
    gt_max: int = setting(min=0, max=MAX_R - 1)
    gt_max_unigram: int = setting(min=0, max=MAX_R - 1)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return GoodTuring(order, gt_max=self.gt_max, gt_max_unigram=self.gt_max_unigram)


class GoodTuring(Smoother):
    """values: `[n, MAX_R + 1]`, d_r of each order; d_r = 1 for the last and all larger r."""

    combination = Combination.backed_off
    bounds = MappingProxyType({f"d{r}": (0.0, 1.0) for r in range(MAX_R + 1)})

    def __init__(self, order: int, *, gt_max: int, gt_max_unigram: int) -> None:
        """gt_max: r up to which counts are discounted, below MAX_R. gt_max_unigram: the same for unigrams."""
        Smoother.__init__(self, order)
        self.values += 1.0
        self.gt_max = [gt_max_unigram, *[gt_max] * (order - 1)]

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        self.values[k - 1, : self.gt_max[k - 1] + 1] = discount_ratios(n, self.gt_max[k - 1], k, self.notes_on_values)

    def numerator(self, k: int, a: Any) -> Any:
        """Return d_r r of counts r `[N]`."""
        return self.values[k - 1][a.clip(max=MAX_R)] * a


def discount_ratios(n: IntArray, gt_max: int, k: int, notes: list[str]) -> list[float]:
    """Return d_0 (not used) to d_largest of order k from its counts of counts n; with a note, 1 if these do not fit."""
    ratios = [1.0] * (gt_max + 1)
    undiscounted: list[int] = []
    common = (gt_max + 1) * n[gt_max + 1] / n[1] if n[1] else 1.0
    for r in range(1, gt_max + 1):
        d = ((r + 1) * n[r + 1] / (r * n[r]) - common) / (1 - common) if n[r] and common != 1 else -1.0
        if 0 < d <= 1:
            ratios[r] = float(d)
        else:
            undiscounted.append(r)
    if undiscounted:
        listed = ", ".join(map(str, undiscounted))
        add_note(
            notes, k, f"the counts of counts do not determine the discount of counts {listed}; fallback: no discount"
        )
    return ratios
