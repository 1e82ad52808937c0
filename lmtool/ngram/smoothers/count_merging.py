"""Count merging: the counts of several sources, each with a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, field_rules, is_number, require, setting
from lmtool.errors import UserError
from lmtool.ngram.smoothers.base import Contexts, Counting, Smoother

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.counting.counts import Counts
    from lmtool.system.arrays import FloatArray


@dataclass(slots=True)
class CountMergingConfig(SmootherConfig):
    r"""Count merging: the counts of several sources, each worth its weight, with discounts that are shares of them.

    .. math::

        p(w|h) &= \frac{m(hw) - d(hw)}{m(h\,\bullet)} + \frac{d(h\,\bullet)}{m(h\,\bullet)}\,p(w|h') \\
        m(hw) &= x_1 + x_2 + \dots \qquad x_1 \ge x_2 \ge x_3 \ge \dots \\
        d(hw) &= D_1 x_1 + D_2 x_2 + D_3 x_3 + D_4 (x_4 + x_5 + \dots)

    In the highest order, and for n-grams that begin with `<s>`, each occurrence of hw contributes one x: the weight of
    its source. In lower orders each n-gram vhw contributes one x: d(vhw), what was discounted from it. The sums in
    :math:`m(h\,\bullet)` and :math:`d(h\,\bullet)` are over w. The weights of the sources and D1 to D4 of each
    order are tuned together on held-out text, or the discounts alone if `source_weights` are given.

    A discount is a share of a contribution, so that weights may be any fractions: where Zhang & Chiang (2014) give
    Kneser-Ney expected counts, here each occurrence is certain, and only worth more or less. With one source this is
    Kneser-Ney in which a shorter n-gram counts what the longer ones leave to it, and not their number.

    Source: Bacchiani, Riley, Roark & Sproat (2006), "MAP adaptation of stochastic grammars", Computer Speech & Language
        20; the discounts are those of pocolm (Povey 2016).
    Complexity: O(N) for each evaluation of the held-out likelihood and its gradient, N being the n-grams of all sources
        and orders; L-BFGS evaluates some dozens of times. p(w|h) as of `model=ngram`.
    """

    kind: str = "count_merging"
    tune_on: str = MISSING
    source_weights: Any = setting(None, said="null, or a number above 0 for each source, e.g. {news: 2, books: 1}")

    def __post_init__(self) -> None:
        given = self.source_weights
        valid = given is None or (isinstance(given, dict) and all(is_number(x, 1e-9, 1e9) for x in given.values()))
        require(valid, "smoother.source_weights", given, field_rules(type(self))["source_weights"].said)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Return count merging with the given weights, or with equal ones, which tuning changes."""
        return MergingSmoother(order, self.source_weights)

    def tuning_split(self) -> str | None:
        return self.tune_on


class MergingSmoother(Smoother):
    """values: `[n, 4]`, D1 to D4 of each order. The tables of an n-gram are what is discounted from it."""

    counting = Counting.tables
    unknown = True
    by_source = True
    # D1 always leaves something to unseen words.
    bounds = MappingProxyType({"D1": (0.01, 1.0), "D2": (0.0, 1.0), "D3": (0.0, 1.0), "D4": (0.0, 1.0)})

    def __init__(self, order: int, fixed_weights: dict[str, float] | None = None) -> None:
        """fixed_weights: of the sources by name, scaled to sum 1; None to tune them."""
        Smoother.__init__(self, order)
        self.values[:] = 0.8, 0.5, 0.25, 0.15
        self.fixed_weights = fixed_weights

    def numerator(self, k: int, a: Any) -> Any:
        """Return m - d of n-grams with m and d, `[N, 2]`."""
        return a[:, 0] - a[:, 1]

    def denominator(self, k: int, h: Contexts) -> Any:
        """Return m(h.), or 1 if it is 0, as after contexts of sources of weight 0."""
        return h.total + (h.total <= 0)

    def weight(self, k: int, h: Contexts) -> Any:
        """Return d(h.) / m(h.), or 1 if m(h.) is 0."""
        return (h.types + (h.total <= 0)) / self.denominator(k, h)

    def tables(self, counts: Counts) -> list[FloatArray]:
        import numpy as np

        from lmtool.ngram.estimation._merging import merged_masses

        sources = counts.by_source()
        masses = merged_masses(counts, sources, self._weights_of(sources.names), self.values)
        return [np.column_stack([order.mass, order.off]) for order in masses]

    def gradient(self, counts: Counts, nodes: list[Any], types: int, loss: Callable[..., Any]) -> Callable[..., Any]:
        from lmtool.ngram.estimation._merging import loss_and_gradient

        sources = counts.by_source()
        self.weights = self._weights_of(sources.names)

        def function(weights: FloatArray, values: FloatArray) -> tuple[float, FloatArray, FloatArray]:
            value, by_weight, by_value = loss_and_gradient(counts, sources, nodes, types, weights, values, loss)
            return value, by_weight * (self.fixed_weights is None), by_value

        return function

    def _weights_of(self, names: list[str]) -> FloatArray:
        """Return the weights of sources: tuned, given, or equal ones."""
        import numpy as np

        given = self.fixed_weights or dict.fromkeys(names, 1.0)
        if set(given) != set(names):
            raise UserError(f"smoother.source_weights={given}: must name the sources of data.train: {', '.join(names)}")
        weights = np.array([given[name] for name in names])
        return weights / weights.sum() if self.weights is None else self.weights
