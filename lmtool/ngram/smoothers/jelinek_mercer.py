r"""Jelinek-Mercer smoothing, or deleted interpolation: each order is mixed with the one below by a weight.

.. math::

    p(w|h) &= \lambda_{b(h)} \frac{c(hw)}{c(h\,\bullet)} + (1 - \lambda_{b(h)})\,p(w|h') \\
    b(h) &= \min(\lfloor \log_2 c(h\,\bullet) \rfloor, K - 1)

There is a weight for each order and each of the K classes b of contexts: those seen once, 2 to 3 times, 4 to 7 times
and so on; the last class holds all others. The weights are tuned on held-out text, or given, one for each order.

Source: Jelinek & Mercer (1980), "Interpolated estimation of Markov source parameters from sparse data", Pattern
    Recognition in Practice; as in Chen & Goodman (1998), *Jelinek-Mercer Smoothing*, with buckets of their own.
Complexity: O(N) to estimate the N n-grams of all orders; O(n T) for each evaluation of the likelihood of T held-out
    tokens, of which L-BFGS takes some dozens; p(w|h) as of `model=ngram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING, are_numbers, require, require_whole
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.smoothers.base import TUNED, Contexts, Smoother


@dataclass(slots=True)
class JelinekMercerConfig(SmootherConfig):
    """lambdas: one per order, from 0 to 1, or tuned on the split tune_on; classes: of contexts, 1 to 32."""

    lambdas: Any = MISSING
    classes: int = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        given = are_numbers(self.lambdas, 0, 1)
        rule = "tuned, or a list of one number per order, each from 0 to 1"
        require(self.lambdas == TUNED or given, "smoother.lambdas", self.lambdas, rule)
        require_whole("smoother.classes", self.classes, 1, 32)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Jelinek-Mercer smoothing; tuning begins with all lambdas 1/2.

        Raises UserError where the number of lambdas is not the order.
        """
        lambdas = None if self.lambdas == TUNED else self.lambdas
        return JelinekMercer(order, classes=self.classes, lambdas=lambdas)

    def tuning_split(self) -> str | None:
        """tune_on where the lambdas are tuned."""
        return self.tune_on if self.lambdas == TUNED else None


class JelinekMercer(Smoother):
    """values: `[n, classes]`, lambda of each order and class of contexts."""

    def __init__(self, order: int, *, classes: int, lambdas: list[float] | None = None) -> None:
        """lambdas: of orders 1 to n, the same for all classes; None where they will be tuned.

        Raises UserError where the number of lambdas is not the order.
        """
        if lambdas is not None and len(lambdas) != order:
            raise UserError(f"smoother.lambdas has {len(lambdas)} numbers: model.order={order} needs {order}")
        self.low, self.high = (0.0,) * classes, (1.0,) * classes
        Smoother.__init__(self, order)
        self.values += np.array(lambdas or [0.5] * order)[:, None]

    def denominator(self, k: int, h: Contexts) -> Any:
        """c(h.) / lambda, `[C]`."""
        return h.total / self._lambda(k, h)

    def weight(self, k: int, h: Contexts) -> Any:
        """1 - lambda, `[C]`."""
        return 1.0 - self._lambda(k, h)

    def _lambda(self, k: int, h: Contexts) -> Any:
        # The exponent of a float64 is the power of two exactly; a logarithm would be rounded.
        number = np.frexp(np.asarray(h.total))[1].astype(np.int64) - 1  # floor(log2 c(h.))
        return self.values[k - 1][np.clip(number, 0, len(self.low) - 1)]
