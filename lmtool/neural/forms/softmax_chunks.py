"""Forms of the full softmax's loss that compute its gradients with it, chunk by chunk: in float32, which bounds memory,
as B x O scores never exist at once; by torch.autocast; and by products of torch in bfloat16.

The plain form is FullSoftmax.loss, whose gradients are autograd's. tests/neural/test_forms.py and test_softmax_bf16.py
compare both.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, b examples of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural.devices import multiplies_bf16
from lmtool.neural.forms import form, tiles
from lmtool.neural.forms._fast_math import bfloat16, exp_below, widened
from lmtool.neural.forms.loops import FAST, as_arrays
from lmtool.neural.outputs.softmax import NO_TARGET, FullSoftmax
from lmtool.system import parallel
from lmtool.system.arrays import Array

MAX_SCORES_PER_CHUNK, MAX_SCORES_PER_CHUNK_GPU = 1 << 24, 1 << 28  # scores that exist at once; 1 GiB on a GPU
# Minimum B x D x O and B for which precision=auto chooses bf16: by tiles or on a GPU; by torch's products on a CPU.
MIN_BF16_PRODUCTS, MIN_BF16_ROWS = 1 << 26, 64
MIN_BF16_PRODUCTS_TORCH, MIN_BF16_ROWS_TORCH = 1 << 24, 16
COLUMN_MULTIPLE = 32  # products are fastest if the columns of the right matrix are a multiple of this
SIDE_BY_SIDE = 64  # numbers processed at once, more than any processor's vector registers hold
SCORES_PER_THREAD = 1 << 19  # scores for which a second thread is worth its start

Gradients = tuple[Tensor, Tensor, Tensor]  # of h [B, D], weight [O, D] and bias [O]
Compute = Callable[[Tensor, Tensor, Tensor, Tensor, Gradients], Tensor]


def in_bf16(layer: FullSoftmax, h: Tensor) -> bool:
    """Return whether the products of a step on h `[B, D]` are in bfloat16: requested, or large enough to gain."""
    if layer.precision is not Precision.auto:
        return layer.precision is Precision.bf16
    by_tiles = tiles.fit(h)
    by_torch = h.is_cpu and not by_tiles
    products, rows = (MIN_BF16_PRODUCTS_TORCH, MIN_BF16_ROWS_TORCH) if by_torch else (MIN_BF16_PRODUCTS, MIN_BF16_ROWS)
    if len(h) < rows or h.numel() * len(layer.bias) < products:
        return False
    return by_tiles or multiplies_bf16(h)


def rows_at_once(h: Tensor, outputs: int) -> int:
    """Return b, the maximum number of examples whose scores of O words exist at once."""
    return max(64, (MAX_SCORES_PER_CHUNK if h.is_cpu else MAX_SCORES_PER_CHUNK_GPU) // outputs)


def loss_with_gradients(layer: FullSoftmax, h: Tensor, y: Tensor, compute: Compute) -> Tensor:
    """Return the mean of -log p(y|h) in nats.

    compute: given h, weight, bias, y and memory for their gradients, sets these and returns the loss; without autograd.
    """
    loss: Tensor = _Loss.apply(h, layer.vectors, layer.bias, y, compute)  # type: ignore[no-untyped-call]
    return loss


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, vectors: Tensor, bias: Tensor, y: Tensor, compute: Compute) -> Tensor:
        h = h.contiguous()
        ctx.save_for_backward(h, vectors, bias, y)
        ctx.compute = compute
        loss, ctx.gradients = _loss_and_gradients(h, vectors, bias, y, compute)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        # They are given away, since autograd adopts a gradient to which nobody else holds a reference. If the graph is
        # kept for another pass they are then computed again; if not, reading the saved tensors raises torch's error.
        gradients = ctx.gradients
        if gradients is None:
            h, vectors, bias, y = ctx.saved_tensors
            gradients = _loss_and_gradients(h, vectors, bias, y, ctx.compute)[1]
        ctx.gradients, scale = None, grad_output[0]
        if not scale.is_cpu or scale != 1:  # a pass over all weights
            gradients = tuple(gradient.mul_(scale) for gradient in gradients)
        return (*gradients, None, None)


def _loss_and_gradients(
    h: Tensor, vectors: Tensor, bias: Tensor, y: Tensor, compute: Compute
) -> tuple[Tensor, Gradients]:
    grad_h, grad_vectors, grad_bias = torch.empty_like(h), torch.empty_like(vectors), torch.empty_like(bias)
    outputs = len(bias)
    grad_vectors[outputs:] = 0  # tied vectors of words that are never predicted
    h, weight, bias = h.detach(), vectors.detach()[:outputs], bias.detach()
    loss = compute(h, weight, bias, y, (grad_h, grad_vectors[:outputs], grad_bias))
    return loss, (grad_h, grad_vectors, grad_bias)


def plain_gradients(h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, grads: Gradients, *, bf16: bool) -> Tensor:
    """Compute the loss and its gradients by autograd, chunk by chunk; bf16: under torch.autocast."""
    leaves = weight.detach().requires_grad_(), bias.detach().requires_grad_()
    grad_h, *grads_of_words = grads
    for grad in grads_of_words:
        grad.zero_()
    loss, rows = h.new_zeros(()), rows_at_once(h, len(bias))
    for first in range(0, len(h), rows):
        some = slice(first, first + rows)
        part = h[some].detach().requires_grad_()
        with torch.enable_grad(), autocast(h, bf16):
            scores = F.linear(part, *leaves)  # [b, O]
            share = F.cross_entropy(scores, y[some], ignore_index=NO_TARGET, reduction="sum") / len(h)
        grad_h[some], *more = torch.autograd.grad(share, (part, *leaves))
        for grad, part_of_it in zip(grads_of_words, more, strict=True):
            grad += part_of_it
        loss += share.detach()
    return loss


def autocast(h: Tensor, wanted: bool) -> AbstractContextManager[Any]:
    """Return a block in which torch's products are in bfloat16, if wanted."""
    return torch.autocast(h.device.type, dtype=torch.bfloat16) if wanted else nullcontext()


def _serves_chunks(layer: FullSoftmax, h: Tensor) -> bool:
    return len(h) > rows_at_once(h, len(layer.bias)) and not in_bf16(layer, h)


def _serves_autocast(layer: FullSoftmax, h: Tensor) -> bool:
    """Return whether to use autocast, the last choice for bf16; it does not change float64."""
    return h.dtype != torch.float64 and in_bf16(layer, h)


def _serves_bf16(layer: FullSoftmax, h: Tensor) -> bool:
    return h.is_cpu and h.dtype == torch.float32 and in_bf16(layer, h)


@form(
    FullSoftmax,
    "loss",
    serves=_serves_bf16,
    measured="2.0 to 3.9 times fp32, 1.1 to 1.9 autocast; EPYC Zen 5, 2026-11-25",
    tolerance=0.02,
    bf16=True,
    calls=("word_vectors",),
)
def softmax_bf16(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss with its gradients, chunk by chunk, by torch's products in bfloat16 with sums in float32."""
    return loss_with_gradients(layer, h, y, _bf16_in_chunks)


@form(
    FullSoftmax,
    "loss",
    serves=_serves_chunks,
    measured="416 MiB instead of 2,403; EPYC Zen 5, 2026-11-25",
    calls=("word_vectors",),
)
def softmax_chunks(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss chunk by chunk, each with its gradients."""
    return loss_with_gradients(layer, h, y, lambda *arguments: plain_gradients(*arguments, bf16=False))


@form(
    FullSoftmax,
    "loss",
    serves=_serves_autocast,
    measured="1.8 to 3.2 times fp32; EPYC Zen 5, 2026-11-25",
    tolerance=0.02,
    bf16=True,
    calls=("word_vectors",),
)
def softmax_autocast(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss under torch.autocast, in chunks if needed; for devices without another form in bf16."""
    if len(h) > rows_at_once(h, len(layer.bias)):
        return loss_with_gradients(layer, h, y, lambda *arguments: plain_gradients(*arguments, bf16=True))
    with autocast(h, True):
        return layer.loss(h, y)


def _bf16_in_chunks(h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, grads: Gradients) -> Tensor:
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
    """Return -log p of y `[b]` after hidden states `[b, D]`, `[b]`, and the gradients of the mean over a batch of
    `batch` examples: of h, `[b, D]`, and of weight `[O, D]` and bias `[O]` side by side, `[O, D + 1 or more]` in bf16.

    scores: memory `[b, O]` in bfloat16; all else float32. One pass over the scores, in place, stands between the
    products: with s = 1 / (batch * sum of exponentials), the scores become d, their gradients up to the factor s. The
    gradients are then s (d W) of h, d' (s h) of W and d' s of b, which is one more column of s h.
    """
    narrow, (size, dim) = weight.bfloat16(), h.shape
    torch.mm(h.bfloat16(), narrow.T, out=scores)
    loss, share = h.new_empty(size), h.new_empty(size)
    arrays = as_arrays(scores.view(torch.uint16), bias, y, loss, share)
    parallel.run_pieces(delta_rows, arrays, size, scores.numel() // SCORES_PER_THREAD)
    share = (share / batch)[:, None]
    scaled = h.new_zeros(size, dim // COLUMN_MULTIPLE * COLUMN_MULTIPLE + COLUMN_MULTIPLE, dtype=torch.bfloat16)
    scaled[:, :dim], scaled[:, dim : dim + 1] = h * share, share
    return loss, torch.mm(scores, narrow) * share, torch.mm(scores.T, scaled)


# A maximum is vectorized only if the compiler may assume that no number is NaN.
@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(row: Array, bias: Array, part: Array) -> Any:
    """Return the maximum of row + bias, by SIDE_BY_SIDE running maxima. part: memory for these, float32."""
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
    """Turn rows `first` to before `last` of scores `[b, O]`, bits of bfloat16, into their gradients up to a factor.

    With e = exp(score + bias - maximum) and S the sum of e over a row, e replaces the score of each word except the
    target, which gets e - S: multiplied by share `[b]`, 1 / S, this is p minus the one-hot target. loss `[b]` is
    -log p(target). Plain form: softmax, then subtraction of the one-hot target, in three passes.
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
        # Before the products, p - 1 is exact to the last digits of a bfloat16; after them it would be a small
        # difference of two large rounded numbers.
        row[target] = bfloat16(exp_below(own) - total)
