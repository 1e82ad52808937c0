"""The full softmax with its gradients by products of torch in bfloat16, whose sums are in float32.

What stands between the products is in float32, too: one pass over the scores, in place. For processors that multiply
bfloat16 without tiles (kernels.tile_softmax).

Legend of shapes: b examples, D dimension, O words.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.kernels.bfloat16 import bfloat16, widened
from lmtool.neural.kernels.fast_math import exp_below
from lmtool.neural.kernels.loops import FAST, WIDTH, Array
from lmtool.system import parallel

COLUMNS = 32  # of a right matrix, of whose multiples products are fastest
SMALL = 1 << 19  # scores for which a second thread is not worth its start


def loss_and_gradients(
    h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, scores: Tensor, batch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """-log p of y `[b]` after hidden `[b, D]`, `[b]`; and over a batch of so many, whose part they are, the gradients
    by h, `[b, D]`, and by weight `[O, D]` and bias `[O]` side by side, `[O, D + 1 or more]` in bfloat16.

    scores: memory `[b, O]` in bfloat16; all else float32.

    The scores become d, with s = 1 / (batch * sum of exponentials) the gradients of these up to s; the gradients are
    s (d W) of h, d' (s h) of W and d' s of b, which is one more column of s h.
    """
    narrow, (size, dim) = weight.bfloat16(), h.shape
    torch.mm(h.bfloat16(), narrow.T, out=scores)
    loss, share = h.new_empty(size), h.new_empty(size)
    arrays = [tensor.numpy() for tensor in (scores.view(torch.uint16), bias, y, loss, share)]
    parallel.run_pieces(delta_rows, arrays, size, scores.numel() // SMALL)
    share = (share / batch)[:, None]
    scaled = h.new_zeros(size, dim // COLUMNS * COLUMNS + COLUMNS, dtype=torch.bfloat16)
    scaled[:, :dim], scaled[:, dim : dim + 1] = h * share, share
    return loss, torch.mm(scores, narrow) * share, torch.mm(scores.T, scaled)


# Where nothing compares with NaN, a maximum can be vectorised.
@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(row: Array, bias: Array, part: Array) -> Any:
    """The maximum of row + bias. part: an uninitialised array of WIDTH, float32."""
    size, whole = len(row), len(row) // WIDTH * WIDTH
    for k in range(WIDTH):
        part[k] = widened(row[k % size]) + bias[k % size]
    for j in range(0, whole, WIDTH):
        for k in range(WIDTH):
            value = widened(row[j + k]) + bias[j + k]
            part[k] = value if value > part[k] else part[k]
    for j in range(whole, size):
        part[0] = max(part[0], widened(row[j]) + bias[j])
    largest = part[0]
    for k in range(WIDTH):
        largest = max(largest, part[k])
    return largest


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def delta_rows(scores: Array, bias: Array, targets: Array, loss: Array, share: Array, first: int, last: int) -> None:
    """Rows `first` to before `last` of scores `[b, O]`, bits of bfloat16, become their gradients up to a factor.

    With e = exp(score + bias - maximum) and S the sum of e over a row, e replaces the score of each word but the
    target, whose is e - S: share `[b]` times these, 1 / S, is p less the one-hot target. loss `[b]` is -log p(target).
    """
    part = np.empty(WIDTH, dtype=np.float32)
    for i in range(first, last):
        row, target = scores[i], targets[i]
        largest = _largest(row, bias, part)
        own = widened(row[target]) + bias[target] - largest
        total: Any = np.float32(0)
        for j in range(len(row)):
            e = exp_below(widened(row[j]) + bias[j] - largest)
            row[j] = bfloat16(e)
            total += e
        share[i] = 1 / total
        loss[i] = math.log(total) - own
        # Before the products, where it is p - 1 to the last digits of a bfloat16: after them it would be a small
        # difference of two large rounded numbers.
        row[target] = bfloat16(exp_below(own) - total)
