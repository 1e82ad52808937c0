"""Count merging: the counts of several sources, weighted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING
from lmtool.ngram.smoothers.base import MergingSmoother, Smoother

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary


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
    order are tuned together on held-out text.

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

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Return count merging with equal weights, which tuning changes."""
        return MergingSmoother(order)

    def tuning_split(self) -> str | None:
        """Return tune_on."""
        return self.tune_on
