"""Rows of scores as probabilities, in place.

torch's softmax sums in float32, eight or sixteen numbers side by side: over 10,000 words a row's sum was wrong by up to
7e-6. Here sums of blocks are added in float64.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from lmtool.neural.kernels.fast_math import exp_below
from lmtool.neural.kernels.loops import FAST

BLOCK = 256  # numbers that are summed in their own type


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def softmax_rows(scores: Any, largest: Any, words: int, first: int, last: int) -> None:
    """Rows `first` to before `last` of scores `[B, W]` become the softmax of their first `words` numbers, then zeros.

    largest: of each row, `[B]`.
    """
    for i in range(first, last):
        row, reference = scores[i], largest[i]
        for j in range(words):
            row[j] = exp_below(row[j] - reference)
        total = 0.0
        for begin in range(0, words, BLOCK):
            part = scores.dtype.type(0)
            for j in range(begin, min(begin + BLOCK, words)):
                part += row[j]
            total += part
        share = scores.dtype.type(1 / total)
        for j in range(words):
            row[j] *= share
        for j in range(words, len(row)):
            row[j] = 0
