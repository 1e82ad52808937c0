r"""Additive smoothing: the same number is added to every count; Laplace's rule if it is one.

.. math::

    p(w|h) = \frac{c(hw) + \alpha}{c(h\,\bullet) + \alpha V}

V is the number of words that can be predicted. As a back-off table: n-grams of the full length are interpolated with
the uniform distribution, with weight :math:`\alpha V / (c(h\,\bullet) + \alpha V)`; shorter ones have no influence.

Source: Lidstone (1920), "Note on the general case of the Bayes-Laplace formula for inductive or a posteriori
    probabilities", Transactions of the Faculty of Actuaries 8; as in Chen & Goodman (1998), *Additive Smoothing*.
Complexity: O(N) to estimate the N n-grams of all orders; p(w|h) as of `model=ngram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, is_number, require
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import TUNED, Contexts, Counting, Smoother


@dataclass(slots=True)
class LaplaceConfig(SmootherConfig):
    """alpha: above 0 and at most 1e9, or tuned on the split tune_on."""

    alpha: Any = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        valid = self.alpha == TUNED or (is_number(self.alpha, 0, 1e9) and self.alpha > 0)
        require(valid, "smoother.alpha", self.alpha, "a number above 0 and at most 1e9, or tuned")

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Additive smoothing over the words of the vocabulary, all but `<s>`; tuning begins with alpha = 1."""
        alpha = 1.0 if self.alpha == TUNED else float(self.alpha)
        return Laplace(order, alpha=alpha, types=len(vocabulary) - 1)

    def tuning_split(self) -> str | None:
        """tune_on where alpha is tuned."""
        return self.tune_on if self.alpha == TUNED else None


class Laplace(Smoother):
    """values: `[n, 1]`, alpha; only that of order n is used."""

    counting = Counting.longest
    low, high = (1e-9,), (100.0,)

    def __init__(self, order: int, *, alpha: float, types: int) -> None:
        """types: V."""
        Smoother.__init__(self, order)
        self.values += alpha
        self.types = types

    def denominator(self, k: int, h: Contexts) -> Any:
        """c(h.) + alpha V, `[C]`."""
        return h.total + self.values[-1, 0] * self.types

    def weight(self, k: int, h: Contexts) -> Any:
        """alpha V / (c(h.) + alpha V), `[C]`."""
        return self.values[-1, 0] * self.types / self.denominator(k, h)
