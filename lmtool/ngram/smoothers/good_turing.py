"""Good-Turing discounting with Katz's back-off (Good 1953; Katz 1987; Chen & Goodman 1998, eq. 13 to 16).

p(w|h) = d_r c(hw) / c(h.) with r = c(hw), where hw was seen, else backoff(h) p(w|h')
d_r = (r*/r - A) / (1 - A) for r up to `largest`, 1 above it
r* = (r + 1) n_{r+1} / n_r,  A = (largest + 1) n_{largest+1} / n_1
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.estimate import LARGEST, Form, Smoother


class GoodTuring(Smoother):
    """values: `[n, LARGEST + 1]`, d_r of each order, with d_r = 1 for the last and all larger r."""

    form = Form.backed_off
    low, high = (0.0,) * (LARGEST + 1), (1.0,) * (LARGEST + 1)

    def __init__(self, order: int, *, largest: int, largest_unigram: int) -> None:
        """largest: r up to which counts are discounted, below LARGEST; largest_unigram: the same for unigrams."""
        Smoother.__init__(self, order)
        self.values += 1.0
        self.largest = [largest_unigram, *[largest] * (order - 1)]

    def fit(self, k: int, n: IntArray, newest: int) -> None:
        """d_r of order k from its counts of counts."""
        self.values[k - 1, : self.largest[k - 1] + 1] = discount_ratios(n, self.largest[k - 1], k, self.notes)

    def kept(self, k: int, a: Any) -> Any:
        """d_r r"""
        return self.values[k - 1][a.clip(max=LARGEST)] * a


def discount_ratios(n: IntArray, largest: int, k: int, notes: list[str]) -> FloatArray:
    """d_0 (unused) to d_largest; 1, with a note, for each r whose counts of counts give no ratio from 0 to 1."""
    ratios = np.ones(largest + 1)
    odd: list[int] = []
    common = (largest + 1) * n[largest + 1] / n[1] if n[1] else 1.0
    for r in range(1, largest + 1):
        d = ((r + 1) * n[r + 1] / (r * n[r]) - common) / (1 - common) if n[r] and common != 1 else -1.0
        if 0 < d <= 1:
            ratios[r] = d
        else:
            odd.append(r)
    if odd:
        notes.append(
            f"order {k}: counts of counts give no discount for counts of {', '.join(map(str, odd))}: none is made"
        )
    return ratios
