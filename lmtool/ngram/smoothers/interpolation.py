"""Smoothers that weight a context by its counts alone: Jelinek-Mercer and Witten-Bell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, are_numbers, field_rules, require, setting
from lmtool.ngram.smoothers.base import TUNED, Combination, Contexts, Smoother, values_of_orders

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.counting.counts import Counts
    from lmtool.system.arrays import FloatArray, IntArray


@dataclass(slots=True)
class JelinekMercerConfig(SmootherConfig):
    r"""Jelinek-Mercer smoothing, or deleted interpolation: each order is mixed with the one below by a weight.

    .. math::

        p(w|h) &= \lambda_{b(h)} \frac{c(hw)}{c(h\,\bullet)} + (1 - \lambda_{b(h)})\,p(w|h') \\
        b(h) &= \min(\lfloor \log_2 c(h\,\bullet) \rfloor, K - 1)

    There is a weight for each order and each of the K buckets b of contexts: those seen once, 2 to 3 times, 4 to 7
    times and so on; the last bucket holds all others. The weights are tuned on held-out text, or given, one for each
    order.

    Source: Jelinek & Mercer (1980), "Interpolated estimation of Markov source parameters from sparse data", Pattern
        Recognition in Practice; as in Chen & Goodman (1998), *Jelinek-Mercer Smoothing*, with other buckets.
    Complexity: O(N) to estimate the N n-grams of all orders; O(n T) for each evaluation of the likelihood of T held-out
        tokens, of which L-BFGS takes some dozens; p(w|h) as of `model=ngram`.
    """

    kind: str = "jelinek_mercer"
    lambdas: Any = setting(said="tuned, or a list of one number per order, each from 0 to 1")
    count_buckets: int = setting(min=1, max=32)
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        SmootherConfig.__post_init__(self)
        given = are_numbers(self.lambdas, 0, 1)
        said = field_rules(type(self))["lambdas"].said
        require(self.lambdas == TUNED or given, "smoother.lambdas", self.lambdas, said)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return JelinekMercer(order, count_buckets=self.count_buckets, lambdas=self.lambdas)


class JelinekMercer(Smoother):
    """values: `[n, count_buckets]`, lambda of each order and bucket of contexts."""

    def __init__(self, order: int, *, count_buckets: int, lambdas: Any = TUNED) -> None:
        """lambdas: of orders 1 to n, the same for all buckets; TUNED for 1/2, where tuning starts."""
        least = [2**b for b in range(count_buckets)]  # how often the contexts of each bucket were seen
        seen = ["1" if c == 1 else f"{c}-{2 * c - 1}" for c in least[:-1]] + [f"{least[-1]}+"]
        self.bounds = {f"lambda[{times}]": (0.0, 1.0) for times in seen}
        Smoother.__init__(self, order)
        for k, value in enumerate(values_of_orders("smoother.lambdas", 0.5 if lambdas == TUNED else lambdas, order)):
            self.values[k] = value

    def denominator(self, k: int, h: Contexts) -> Any:
        """Return c(h.) / lambda, `[C]`."""
        return h.total / self._lambda(k, h)

    def weight(self, k: int, h: Contexts) -> Any:
        """Return 1 - lambda, `[C]`."""
        return 1.0 - self._lambda(k, h)

    def _lambda(self, k: int, h: Contexts) -> Any:
        import numpy as np

        # The exponent of a float64 is the power of two exactly; a logarithm would be rounded.
        bucket = np.frexp(np.asarray(h.total))[1].astype(np.int64) - 1  # floor(log2 c(h.))
        return self.values[k - 1][np.clip(bucket, 0, len(self.bounds) - 1)]


@dataclass(slots=True)
class WittenBellConfig(SmootherConfig):
    r"""Witten-Bell smoothing: the next word is new after a context as often as words were new there before.

    .. math::

        p(w|h) = \frac{c(hw) + N_{1+}(h\,\bullet)\,p(w|h')}{c(h\,\bullet) + N_{1+}(h\,\bullet)}

    :math:`N_{1+}(h\,\bullet)` is the number of distinct words after h, which is how often the word after h was new
    there. Without `interpolate`, words seen after h have
    :math:`c(hw) / (c(h\,\bullet) + N_{1+}(h\,\bullet))`, and the others share the rest in proportion to p(w|h').
    With `alpha`, the unigrams are :math:`p(w) = (c(w) + \alpha) / (c(\bullet) + \alpha V)`, V being the number of words
    that can be predicted.

    Source: Witten & Bell (1991), "The zero-frequency problem", IEEE Transactions on Information Theory 37, method C; as
        in Chen & Goodman (1998), *Witten-Bell Smoothing*.
    Complexity: O(N) to estimate the N n-grams of all orders, no parameters; p(w|h) as of `model=ngram`.
    """

    kind: str = "witten_bell"
    interpolate: bool = MISSING
    local_cloze: bool = MISSING
    alpha: float | None = setting(None, above=0, max=1e9)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        return WittenBell(order, interpolate=self.interpolate, alpha=self.alpha, types=len(vocabulary) - 1)

    def scores_candidates_alone(self) -> bool:
        return self.local_cloze

    def cloze_log_prob(self, counts: Counts, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p `[Q, K]` in nats of candidates `[Q, K]` after contexts `[Q, n - 1]`, from their counts alone.

            p(w|h) = (c(hw) + N p(w|h')) / (C + N)

        is normalized at every order over the question's K candidates, as in the report of CS287 HW3: C is the sum of
        their c(hw), and N the number of them seen after h, or alpha K for unigrams; below these is 1/K. If none was
        seen after h, p(w|h) = p(w|h'). Candidates out of vocabulary count as one and share its probability.
        """
        import numpy as np

        from lmtool.data.cloze import unk_sharers
        from lmtool.ngram.tables.backoff import log

        questions, choices = candidates.shape
        p = np.full((questions, choices), 1 / choices)
        sharers = unk_sharers(candidates, counts.unk)
        nodes = counts.trie.find_contexts(contexts, counts.bos, counts.order - 1)
        for k in range(1, counts.order + 1):
            c = np.zeros((questions, choices))
            if k == 1:
                c = counts.count[0][:][candidates] * (candidates != counts.bos).astype(float)
            else:
                gram = counts.trie.find_followers(np.repeat(nodes[:, k - 2], choices), candidates.reshape(-1))
                seen = gram >= 0
                c.reshape(-1)[seen] = counts.count[k - 1][gram[seen] - counts.trie.first(k)]
            c, seen_types = c / sharers, (c > 0) / sharers
            total, types = c.sum(axis=1, keepdims=True), seen_types.sum(axis=1, keepdims=True)
            if k == 1 and self.alpha is not None:
                types = np.full_like(total, self.alpha * choices)
            p = np.where(total > 0, (c + types * p) / np.maximum(total + types, 1), p)
        return log(p)


class WittenBell(Smoother):
    """Witten-Bell smoothing, which has no values to tune."""

    def __init__(self, order: int, *, interpolate: bool = True, alpha: float | None = None, types: int = 0) -> None:
        """interpolate: False to back off. alpha: added to the count of each of the `types` words; None: Witten-Bell."""
        Smoother.__init__(self, order)
        self.combination = Combination.interpolated if interpolate else Combination.backed_off
        self.interpolates_unigrams = alpha is not None
        self._added = None if alpha is None else alpha * types

    def denominator(self, k: int, h: Contexts) -> Any:
        """Return c(h.) + N1+(h.), `[C]`, or c(.) + alpha V for unigrams."""
        return h.total + self._new(k, h)

    def weight(self, k: int, h: Contexts) -> Any:
        """Return N1+(h.) / (c(h.) + N1+(h.)), `[C]`, or alpha V / (c(.) + alpha V) for unigrams."""
        return self._new(k, h) / self.denominator(k, h)

    def _new(self, k: int, h: Contexts) -> Any:
        return h.types if k > 1 or self._added is None else self._added
