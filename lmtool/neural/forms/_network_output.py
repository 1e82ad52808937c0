"""The softmax of forms.network_step, in the weights' dtype and in bfloat16: loss, gradients, and the update of U.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.forms._fast_math import exp_below, widened
from lmtool.neural.forms.loops import FAST
from lmtool.neural.forms.softmax_chunks import loss_and_gradients
from lmtool.system import parallel
from lmtool.system.arrays import Array

WEIGHTS_PER_THREAD = 1 << 18  # weights for which a second thread is worth its start


class FactoredGradients:
    """Gradients in the dtype of the weights. The gradient of U, delta h, is added to U as a product and never stored;
    delta is p minus the one-hot targets, divided by B.

    loss: the mean of -log p. grad_h: `[B, D]`. grad_bias: of b, `[O]`.
    """

    def __init__(self, output: Tensor, bias: Tensor, h: Tensor, targets: Tensor, scores: Tensor) -> None:
        """output: U `[O, D]`. bias: b `[O]`. h: `[B, D]`. targets: `[B]`, int64. scores: memory for B O scores."""
        self._output, self._h = output, h
        self._delta = torch.mm(output, h.T, out=scores.view(len(output), len(h)))
        words, delta = targets.numpy(), self._delta.numpy()
        losses, share, largest = (h.new_empty(len(h)).numpy() for _ in range(3))
        _exp_columns(delta, bias.numpy(), words, losses, share, largest)
        self.loss = float(losses.sum(dtype=np.float64)) / len(h)
        _softmax_gradient(delta, words, share)
        self.grad_h, self.grad_bias = torch.mm(self._delta.T, output), self._delta.sum(1)

    def square(self) -> float:
        """Return the squared norm of the gradient of U: the sum of (delta delta') o (h h'), `[B, B]` each."""
        both = torch.mm(self._delta.T, self._delta) * torch.mm(self._h, self._h.T)
        return float(both.sum(dtype=torch.float64))

    def apply(self, keep: float, change: float) -> None:
        """Set U to keep U + change times its gradient."""
        torch.addmm(self._output, self._delta, self._h, beta=keep, alpha=change, out=self._output)


class Bf16Gradients:
    """Gradients by products in bfloat16; the gradient of U is computed with that of h."""

    def __init__(self, output: Tensor, bias: Tensor, h: Tensor, targets: Tensor, scores: Tensor) -> None:
        """Arguments: those of FactoredGradients, all in float32 except the scores, in bfloat16."""
        memory = scores.view(len(h), len(output))
        losses, self.grad_h, both = loss_and_gradients(h, output, bias, targets, memory, len(h))
        self.loss = float(losses.sum(dtype=torch.float64)) / len(h)
        self._output, self._grad, self.grad_bias = output, both[:, : h.shape[1]], both[:, h.shape[1]].float()

    def square(self) -> float:
        """Return the squared norm of the gradient of U."""
        return float(self._grad.float().square().sum(dtype=torch.float64))

    def apply(self, keep: float, change: float) -> None:
        """Set U to keep U + change times its gradient."""
        arrays = self._output.numpy(), self._grad.view(torch.uint16).numpy(), np.float32(keep), np.float32(change)
        parallel.run_pieces(_change_rows, arrays, len(self._output), self._output.numel() // WEIGHTS_PER_THREAD)


@njit(cache=True, nogil=True, fastmath=FAST)
def _change_rows(weight: Array, grad: Array, keep: float, change: float, first: int, last: int) -> None:
    """Set weight `[O, D]` to keep weight + change grad, bits of bfloat16; torch takes twice as long with two dtypes."""
    for i in range(first, last):
        row, more = weight[i], grad[i]
        for j in range(len(row)):
            row[j] = keep * row[j] + change * widened(more[j])


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _exp_columns(scores: Array, bias: Array, targets: Array, loss: Array, share: Array, largest: Array) -> None:
    """Turn scores `[O, b]`, a column for each example, into exp(score + bias - maximum).

    share[i] becomes 1 over the sum of a column, loss[i] -log p(target). Loops run over the examples in the innermost
    place, where they are vectorized: scores are transposed, since with few examples W h' is faster than h W' (MKL of
    torch 2.13). Plain form: log_softmax and nll_loss of h W' + b. largest: memory `[b]`.
    """
    outputs, examples = scores.shape
    for i in range(examples):
        largest[i] = scores[0, i] + bias[0]
        share[i] = 0
    for j in range(outputs):
        for i in range(examples):
            value = scores[j, i] + bias[j]
            scores[j, i] = value
            largest[i] = value if value > largest[i] else largest[i]
    for i in range(examples):
        loss[i] = largest[i] - scores[targets[i], i]
    for j in range(outputs):
        for i in range(examples):
            e = exp_below(scores[j, i] - largest[i])
            scores[j, i] = e
            share[i] += e
    for i in range(examples):
        loss[i] += math.log(share[i])
        share[i] = 1 / share[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _softmax_gradient(exponentials: Array, targets: Array, share: Array) -> None:
    """Turn the exponentials of _exp_columns, `[O, b]`, into the gradient of the scores: (p - onehot) / b."""
    outputs, examples = exponentials.shape
    each = exponentials.dtype.type(1 / examples)
    for j in range(outputs):
        for i in range(examples):
            exponentials[j, i] *= share[i] * each
    for i in range(examples):
        exponentials[targets[i], i] -= each
