"""Jelinek-Mercer smoothing, or deleted interpolation (Jelinek & Mercer 1980; Chen & Goodman 1998, eq. 12).

    p(w|h) = lambda c(hw) / c(h.) + (1 - lambda) p(w|h')

lambda depends on the order and on how often h was seen: contexts seen once, 2-3 times, 4-7 times and so
on are of one class each; the last class holds all others. Held-out text is what the lambdas are found on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.estimate import Contexts, Smoother


class JelinekMercer(Smoother):
    """values: `[n, classes]`, lambda of each order and class of contexts."""

    def __init__(self, order: int, *, classes: int, lambdas: list[float] | None = None) -> None:
        """lambdas: of each order from 1 to n, for all classes; None for those that are to be tuned.

        Raises UserError where the given lambdas are not as many as the orders.
        """
        if lambdas is not None and len(lambdas) != order:
            raise UserError(f"smoother.lambdas: {len(lambdas)} numbers given, order {order} needs {order}")
        self.low, self.high = (0.0,) * classes, (1.0,) * classes
        Smoother.__init__(self, order)
        self.values += np.array(lambdas or [0.5] * order)[:, None]

    def norm(self, k: int, h: Contexts) -> Any:
        """c(h.) / lambda"""
        return h.total / self._lambda(k, h)

    def weight(self, k: int, h: Contexts) -> Any:
        """1 - lambda"""
        return 1.0 - self._lambda(k, h)

    def _lambda(self, k: int, h: Contexts) -> Any:
        # float64 holds the power of two in its exponent, exactly: no logarithm to round.
        number = np.frexp(np.asarray(h.total))[1].astype(np.int64) - 1  # floor(log2 c(h.))
        return self.values[k - 1][np.clip(number, 0, len(self.low) - 1)]
