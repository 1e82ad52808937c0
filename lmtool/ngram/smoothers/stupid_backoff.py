"""Stupid backoff (Brants et al. 2007, eq. 5): scores, not probabilities.

    S(w|h) = c(hw) / c(h) where hw was seen, else alpha S(w|h')

They do not sum to one over the words, so that the exponential of their mean is not a perplexity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, require
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import Contexts, Form, Smoother


@dataclass(slots=True)
class StupidBackoffConfig(SmootherConfig):
    """alpha: above 0 and at most 1."""

    alpha: float = MISSING

    def __post_init__(self) -> None:
        require(0 < self.alpha <= 1, "smoother.alpha", self.alpha, "above 0 and at most 1")

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Stupid backoff for n-grams of up to `order` words."""
        return StupidBackoff(order, alpha=self.alpha)


class StupidBackoff(Smoother):
    """Numerator c(hw), denominator c(h.), which is c(h): every word but `</s>` is followed by another."""

    form = Form.scores

    def __init__(self, order: int, *, alpha: float) -> None:
        """alpha: the weight of the shorter context."""
        Smoother.__init__(self, order)
        self.alpha = alpha
        self.missing = math.log(alpha)
        self.notes = ["stupid backoff gives scores that do not sum to one: their perplexity is not comparable"]

    def weight(self, k: int, h: Contexts) -> Any:
        """alpha, `[C]`."""
        return self.alpha + 0.0 * h.total
