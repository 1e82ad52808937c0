"""Forms of the full softmax's loss that compute its gradients with it, chunk by chunk: in float32, which bounds memory,
as B x O scores never exist at once; and by torch.autocast. Also the parts that the forms in bfloat16 share.

The plain form is FullSoftmax.loss, whose gradients are autograd's. tests/neural/test_forms.py compares both.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, b examples of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import llvmlite.binding
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural.devices import multiplies_bf16
from lmtool.neural.forms import form, tiles
from lmtool.neural.outputs.softmax import NO_TARGET, FullSoftmax

MAX_SCORES_PER_CHUNK, MAX_SCORES_PER_CHUNK_GPU = 1 << 24, 1 << 28  # scores that exist at once; 1 GiB on a GPU
# Minimum B x D x O and B for which precision=auto chooses bf16: by tiles or on a GPU; by dot products on a CPU.
MIN_BF16_PRODUCTS, MIN_BF16_ROWS = 1 << 26, 64
MIN_BF16_PRODUCTS_DOTS, MIN_BF16_ROWS_DOTS = 1 << 24, 16

Gradients = tuple[Tensor, Tensor, Tensor]  # gradients of h [B, D], weight [O, D] and bias [O]
Compute = Callable[[Tensor, Tensor, Tensor, Tensor, Gradients], Tensor]
loss_form = partial(form, FullSoftmax, "loss", calls=("word_vectors",))
bf16_form = partial(loss_form, tolerance=0.02, bf16=True)


def in_bf16(layer: FullSoftmax, h: Tensor) -> bool:
    """Return whether the products of a step on h `[B, D]` are in bfloat16: requested, or large enough to gain."""
    if not layer.training:
        return False
    if layer.precision is not Precision.auto:
        return layer.precision is Precision.bf16
    by_tiles = tiles.fit(h)
    by_dots = h.is_cpu and not by_tiles and fast_dots()
    products, rows = (MIN_BF16_PRODUCTS_DOTS, MIN_BF16_ROWS_DOTS) if by_dots else (MIN_BF16_PRODUCTS, MIN_BF16_ROWS)
    if len(h) < rows or h.numel() * len(layer.bias) < products:
        return False
    return by_tiles or multiplies_bf16(h)


def fast_dots() -> bool:
    """Return whether dot products of AVX-512 beat autocast: on AMD's processors (figures: forms.softmax_bf16)."""
    return tiles.has_dots() and llvmlite.binding.get_host_cpu_name().startswith("znver")


def rows_at_once(h: Tensor, outputs: int) -> int:
    """Return b, the maximum number of examples whose scores of O words exist at once."""
    return max(64, (MAX_SCORES_PER_CHUNK if h.is_cpu else MAX_SCORES_PER_CHUNK_GPU) // outputs)


def loss_with_gradients(layer: FullSoftmax, h: Tensor, y: Tensor, compute: Compute) -> Tensor:
    """Return the mean of -log p(y|h) in nats. compute: sets the gradients and returns the loss, without autograd."""
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
        # They are handed over, since autograd adopts a gradient without other references. If the graph is
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


def _serves_autocast(layer: FullSoftmax, h: Tensor) -> bool:
    """Return whether to use autocast, the last choice for bf16; it does not change float64."""
    return h.dtype != torch.float64 and in_bf16(layer, h)


@loss_form(
    serves=lambda layer, h: len(h) > rows_at_once(h, len(layer.bias)) and not in_bf16(layer, h),
    measured="416 MiB instead of 2,403; EPYC Zen 5, 2026-11-25",
)
def softmax_chunks(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss chunk by chunk, each with its gradients."""
    return loss_with_gradients(layer, h, y, lambda *arguments: plain_gradients(*arguments, bf16=False))


@bf16_form(serves=_serves_autocast, measured="1.8 to 3.2 times fp32; EPYC Zen 5, 2026-11-25")
def softmax_autocast(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss under torch.autocast, in chunks if needed; for devices without another form in bf16."""
    if len(h) > rows_at_once(h, len(layer.bias)):
        return loss_with_gradients(layer, h, y, lambda *arguments: plain_gradients(*arguments, bf16=True))
    with autocast(h, True):
        return layer.loss(h, y)
