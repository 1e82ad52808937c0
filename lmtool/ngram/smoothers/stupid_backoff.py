"""Stupid backoff (Brants et al. 2007, eq. 5): scores, not probabilities.

    S(w|h) = c(hw) / c(h) where hw was seen, else alpha S(w|h')

They do not sum to one over the words, and what is called perplexity for them cannot be compared with others.
"""

from __future__ import annotations

import math
from typing import Any

from lmtool.ngram.estimate import Contexts, Form, Smoother


class StupidBackoff(Smoother):
    """share(hw) = c(hw) / c(h): every word but `</s>` is followed by another, so that c(h) is c(h.)."""

    form = Form.scores

    def __init__(self, order: int, *, alpha: float) -> None:
        Smoother.__init__(self, order)
        self.alpha = alpha
        self.missing = math.log(alpha)
        self.notes = ["stupid backoff gives scores that do not sum to one: their perplexity is none"]

    def weight(self, k: int, h: Contexts) -> Any:
        """alpha"""
        return self.alpha + 0.0 * h.total
