"""Scores of each example with a row of its own and with rows that all examples of a batch share, such as the target
beside noise words, and their gradients.

On a CPU, in float32 and float64, one matrix product for the shared rows and compiled loops for the others do the work,
and rows are grouped once for all gradients; elsewhere the plain form does.

Legend of shapes: B examples, H dimension, R rows of a matrix `[R, H]`, N rows that all examples share, U different
rows among all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lmtool.neural.kernels import loops
from lmtool.neural.kernels.sparse_rows import (
    Groups,
    as_arrays,
    compiled,
    each_example,
    lookup,
    pairs_of,
    rows_gradient,
)


def own_and_shared_scores(
    h: Tensor, weight: Tensor, bias: Tensor, shift: Tensor, own: Tensor, shared: Tensor, *, sparse: bool
) -> tuple[Tensor, Tensor]:
    """h[b] . weight[r] + bias[r] - shift[r] for each example's row r of own `[B]`: `[B]`, and for all of shared `[N]`:
    `[B, N]`.

    h: `[B, H]`. weight: `[R, H]`. bias: `[R]`. shift: `[R]`, without a gradient. own and shared: int64, of any rows,
    which may be the same. sparse: whether the gradients of weight and bias are.
    """
    if not compiled(h) or h.dtype != weight.dtype:
        return own_and_shared_scores_plain(h, weight, bias, shift, own, shared, sparse=sparse)
    scores: tuple[Tensor, Tensor]
    scores = _OwnAndShared.apply(h, weight, bias, shift, own, shared, sparse)  # type: ignore[no-untyped-call]
    return scores


def own_and_shared_scores_plain(
    h: Tensor, weight: Tensor, bias: Tensor, shift: Tensor, own: Tensor, shared: Tensor, *, sparse: bool
) -> tuple[Tensor, Tensor]:
    """own_and_shared_scores in ordinary tensor operations."""
    rows, size = torch.cat([own, shared]), len(own)
    offset = lookup(bias, rows, sparse=sparse) - shift[rows]
    used = lookup(weight, rows, sparse=sparse)  # [B + N, H]
    return (h * used[:size]).sum(1) + offset[:size], torch.addmm(offset[size:], h, used[size:].T)


class _OwnAndShared(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, shift: Tensor, own: Tensor, shared: Tensor, sparse: bool
    ) -> tuple[Tensor, Tensor]:
        h = h.contiguous()
        used = weight.index_select(0, shared)  # [N, H]
        others = torch.addmm(bias.index_select(0, shared) - shift.index_select(0, shared), h, used.T)
        pairs, scores = pairs_of(own[:, None]), h.new_empty(len(h))
        each_example(pairs, h.shape[1], loops.dot_rows, *as_arrays(h, weight, bias, pairs.starts, own, scores))
        scores -= shift.index_select(0, own)
        ctx.save_for_backward(h, weight, own, shared, used)
        ctx.pairs, ctx.sparse, ctx.biases = pairs, sparse, bias.shape
        return scores, others

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, own, shared, used = ctx.saved_tensors
        grad_own, grad_others = (gradient.contiguous() for gradient in grad_output)
        size, width, shape = len(h), h.shape[1], weight.shape
        grad_h = None
        if ctx.needs_input_grad[0]:
            grad_h = torch.empty_like(h)
            arrays = as_arrays(grad_own, weight, ctx.pairs.starts, own, grad_h)
            each_example(ctx.pairs, width, loops.dot_rows_grad_h, *arrays)
            grad_h.addmm_(grad_others, used)
        groups, values = Groups(torch.cat([own, shared])), h.new_empty(size + len(shared), width)
        torch.mul(grad_own[:, None], h, out=values[:size])
        torch.mm(grad_others.T, h, out=values[size:])
        offsets = torch.cat([grad_own, grad_others.sum(0)])[:, None]
        unique = torch.from_numpy(groups.unique)
        of_weight = rows_gradient(unique, groups.sums(values), shape, ctx.sparse)
        of_bias = rows_gradient(unique, groups.sums(offsets)[:, 0], ctx.biases, ctx.sparse)
        return grad_h, of_weight, of_bias, None, None, None, None
