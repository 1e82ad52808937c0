r"""Maximum likelihood: the counts as they are.

.. math::

    p(w|h) = \frac{c(hw)}{c(h\,\bullet)}

A word never seen after a context that was seen has probability 0; a context that was never seen has no estimate, and
the shorter context's is taken.

Source: Chen & Goodman (1998), "An empirical study of smoothing techniques for language modeling", Harvard TR-10-98,
    *Introduction*.
Complexity: O(N) to estimate the N n-grams of all orders; p(w|h) as of `model=ngram`.
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
