r"""Stupid backoff: relative frequencies, and a factor for each step to a shorter context; scores, not probabilities.

.. math::

    S(w|h) = \begin{cases} c(hw) / c(h) & \text{if } c(hw) > 0 \\ \alpha\,S(w|h') & \text{otherwise} \end{cases}
    \qquad S(w) = \frac{c(w)}{\sum_v c(v)}

They do not sum to one over the words, so that the exponential of their mean is not a perplexity.

Source: Brants, Popat, Xu, Och & Dean (2007), "Large language models in machine translation", EMNLP, eq. 5.
Complexity: O(N) to estimate the N n-grams of all orders; S(w|h) as p(w|h) of `model=ngram`.
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
