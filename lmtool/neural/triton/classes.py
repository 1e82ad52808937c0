"""Softmaxes over the words of each target's class, in Triton: the second of ClassSoftmax's two.

Legend of shapes: B examples, D dimension of the hidden, R rows of a matrix `[R, D]`, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lmtool.neural.triton import class_kernels
from lmtool.neural.triton.launching import contiguous, launch, row_blocks


def in_class_losses(
    h: Tensor, weight: Tensor, bias: Tensor, classes: Tensor, starts: Tensor, members: Tensor, targets: Tensor
) -> Tensor:
    """-log p of a word within its class, `[B]`, float32, with dense gradients whose sums have no fixed order.

    h `[B, D]`, weight `[R, D]`, bias `[R]`; classes `[B]`, int64; the rows of class c are members[starts[c]] to before
    members[starts[c + 1]], int64; targets `[B]`, int64: the place of each word among them.
    """
    losses: Tensor = _InClass.apply(h, weight, bias, classes, starts, members, targets)  # type: ignore[no-untyped-call]
    return losses


class _InClass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, *lists: Tensor) -> Tensor:
        totals, chosen = (h.new_empty(len(h), dtype=torch.float32) for _ in range(2))
        inputs = contiguous(h, weight, bias, *lists)
        launch(class_kernels.losses, (len(h),), h, *inputs, totals, chosen, **row_blocks(h.shape[1], 16))
        ctx.save_for_backward(h, weight, bias, *lists, totals)
        return totals - chosen

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, bias, *lists, totals = ctx.saved_tensors
        scales = grad_output[0].float().contiguous()
        grad_h = torch.empty_like(h, memory_format=torch.contiguous_format)
        grad_weight, grad_bias = (torch.zeros_like(tensor, dtype=torch.float32) for tensor in (weight, bias))
        inputs = *contiguous(h, weight, bias, *lists), totals, scales
        outputs = grad_h, grad_weight, grad_bias
        launch(class_kernels.gradients, (len(h),), h, *inputs, *outputs, **row_blocks(h.shape[1], 16))
        return grad_h, grad_weight.to(weight.dtype), grad_bias.to(bias.dtype), None, None, None, None
