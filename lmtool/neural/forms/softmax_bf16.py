"""The full softmax with its gradients by products of torch in bfloat16, whose sums are in float32.

What stands between the products is in float32, too: one pass over the scores, in place. For processors that multiply
bfloat16 without tiles (forms.softmax_tiles).

Legend of shapes: B examples, D dimension, O words, b examples of a chunk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.forms import form
from lmtool.neural.forms.fast_math import bfloat16, exp_below, widened
from lmtool.neural.forms.loops import FAST, Array, as_arrays
from lmtool.neural.forms.softmax_chunks import Gradients, in_bf16, loss_with_gradients, rows_at_once
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel

COLUMNS = 32  # of a right matrix, of whose multiples products are fastest
SIDE_BY_SIDE = 64  # numbers worked on at once, more than any processor's vector registers hold
SCORES_PER_THREAD = 1 << 19  # for which a second thread is worth its start


def _serves(layer: FullSoftmax, h: Tensor) -> bool:
    return h.is_cpu and h.dtype == torch.float32 and in_bf16(layer, h)


@form(
    FullSoftmax,
    "loss",
    serves=_serves,
    measured="2.0 to 3.9 times fp32, 1.1 to 1.9 autocast; EPYC Zen 5, 2026-11-25",
    tolerance=0.02,
    bf16=True,
    calls=("weight",),
)
def softmax_bf16(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss with its gradients, chunk by chunk."""
    return loss_with_gradients(layer, h, y, _in_chunks)


def _in_chunks(h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, grads: Gradients) -> Tensor:
    dim, rows = h.shape[1], min(len(h), rows_at_once(h, len(bias)))
    buffer = torch.empty(rows, len(bias), dtype=torch.bfloat16)
    loss = h.new_zeros((), dtype=torch.float64)
    for first in range(0, len(h), rows):
        some = slice(first, first + rows)
        scores = buffer[: len(h[some])]
        losses, grads[0][some], of_words = loss_and_gradients(h[some], weight, bias, y[some], scores, len(h))
        for grad, part in zip(grads[1:], (of_words[:, :dim], of_words[:, dim]), strict=True):
            grad.add_(part) if first else grad.copy_(part)
        loss += losses.sum(dtype=torch.float64)
    return (loss / len(h)).to(h.dtype)


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
    arrays = as_arrays(scores.view(torch.uint16), bias, y, loss, share)
    parallel.run_pieces(delta_rows, arrays, size, scores.numel() // SCORES_PER_THREAD)
    share = (share / batch)[:, None]
    scaled = h.new_zeros(size, dim // COLUMNS * COLUMNS + COLUMNS, dtype=torch.bfloat16)
    scaled[:, :dim], scaled[:, dim : dim + 1] = h * share, share
    return loss, torch.mm(scores, narrow) * share, torch.mm(scores.T, scaled)


# Where nothing compares with NaN, a maximum can be vectorised.
@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(row: Array, bias: Array, part: Array) -> Any:
    """The maximum of row + bias. part: an uninitialised array of SIDE_BY_SIDE, float32."""
    size, whole = len(row), len(row) // SIDE_BY_SIDE * SIDE_BY_SIDE
    for k in range(SIDE_BY_SIDE):
        part[k] = widened(row[k % size]) + bias[k % size]
    for j in range(0, whole, SIDE_BY_SIDE):
        for k in range(SIDE_BY_SIDE):
            value = widened(row[j + k]) + bias[j + k]
            part[k] = value if value > part[k] else part[k]
    for j in range(whole, size):
        part[0] = max(part[0], widened(row[j]) + bias[j])
    largest = part[0]
    for k in range(SIDE_BY_SIDE):
        largest = max(largest, part[k])
    return largest


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def delta_rows(scores: Array, bias: Array, targets: Array, loss: Array, share: Array, first: int, last: int) -> None:
    """Rows `first` to before `last` of scores `[b, O]`, bits of bfloat16, become their gradients up to a factor.

    With e = exp(score + bias - maximum) and S the sum of e over a row, e replaces the score of each word but the
    target, whose is e - S: share `[b]` times these, 1 / S, is p less the one-hot target. loss `[b]` is -log p(target).
    """
    part = np.empty(SIDE_BY_SIDE, dtype=np.float32)
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
