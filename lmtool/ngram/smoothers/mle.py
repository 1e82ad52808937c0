"""Maximum likelihood (Chen & Goodman 1998, *Introduction*).

    p(w|h) = c(hw) / c(h.)

A word never seen after a context that was seen has probability 0; a context that was never seen has no estimate, and
the shorter context's is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import SmootherConfig
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import Smoother


@dataclass(slots=True)
class MleConfig(SmootherConfig):
    """Maximum likelihood; no settings."""

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Maximum likelihood for n-grams of up to `order` words."""
        return MaximumLikelihood(order)


class MaximumLikelihood(Smoother):
    """Numerator c(hw), denominator c(h.), weight 0; no parameters."""
