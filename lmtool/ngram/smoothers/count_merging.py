r"""Count merging: the counts of several sources, each worth its weight, with discounts that are shares of them.

.. math::

    p(w|h) &= \frac{m(hw) - d(hw)}{m(h\,\bullet)} + \frac{d(h\,\bullet)}{m(h\,\bullet)}\,p(w|h') \\
    m(hw) &= x_1 + x_2 + \dots \qquad x_1 \ge x_2 \ge x_3 \ge \dots \\
    d(hw) &= D_1 x_1 + D_2 x_2 + D_3 x_3 + D_4 (x_4 + x_5 + \dots)

In the highest order, and for n-grams that begin with `<s>`, the contributions x are one for each occurrence of hw: the
weight of its source. Below, they are one for each n-gram vhw: d(vhw), what was discounted from it. The sums in
:math:`m(h\,\bullet)` and :math:`d(h\,\bullet)` are over w. The weights of the sources and D1 to D4 of each order are
tuned together on held-out text.

A discount is a share of a contribution, so that weights may be any fractions: where Zhang & Chiang (2014) give
Kneser-Ney expected counts, here each occurrence is certain, and only worth more or less. With one source this is
Kneser-Ney in which a shorter n-gram counts what the longer ones leave to it, and not how many they are.

Source: Bacchiani, Riley, Roark & Sproat (2006), "MAP adaptation of stochastic grammars", Computer Speech & Language
    20; the discounts are those of pocolm (Povey 2016).
Complexity: O(N) for each evaluation of the held-out likelihood and its gradient, N being the n-grams of all sources
    and orders; L-BFGS evaluates some dozens of times. p(w|h) as of `model=ngram`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import MergingSmoother, Smoother


@dataclass(slots=True)
class CountMergingConfig(SmootherConfig):
    """tune_on: the split that weights and discounts are tuned on."""

    tune_on: str = MISSING

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Count merging with equal weights, until it is tuned."""
        return CountMerging(order)

    def tuning_split(self) -> str | None:
        """tune_on."""
        return self.tune_on


class CountMerging(MergingSmoother):
    """values: `[n, 4]`, D1 to D4 of each order; weights: of the sources."""
