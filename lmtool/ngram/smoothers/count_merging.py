"""Count merging (Bacchiani, Riley, Roark & Sproat 2006) with the discounts of pocolm (Povey 2016).

    p(w|h) = (mass(hw) - off(hw)) / mass(h.) + off(h.) / mass(h.) p(w|h')
    mass(hw) = x1 + x2 + ...                                    x1 >= x2 >= x3 >= ...
    off(hw) = D1 x1 + D2 x2 + D3 x3 + D4 (x4 + x5 + ...)

In the highest order, and for n-grams that begin with `<s>`, the contributions x are one for each occurrence of hw: the
weight of its source. Below, they are one for each n-gram vhw: off(vhw), what was discounted from it. mass(h.) and
off(h.) are the sums over w. The weights of the sources and D1 to D4 of each order are tuned together on held-out text.

A discount is a share of a contribution, so that weights may be any fractions: where Zhang & Chiang (2014) give
Kneser-Ney expected counts, here each occurrence is certain, and only worth more or less. With one source this is
Kneser-Ney in which a shorter n-gram counts what the longer ones leave to it, and not how many they are.
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
