"""Scores of each example with a row of its own and with rows that all examples of a batch share, such as the target
beside noise words, and their gradients.

On a CPU, in float32 and float64, one matrix product for the shared rows and compiled loops for the others do the work,
and no gradient is made of a row twice; elsewhere the plain form does.

Legend of shapes: B examples, H dimension, R rows of a matrix `[R, H]`, N rows that all examples share, U different
rows among all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.kernels.loops import FAST
from lmtool.neural.kernels.sparse_rows import SMALL, Groups, compiled, lookup, rows_gradient
from lmtool.system import parallel

Array = npt.NDArray[Any]


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
        scores = bias.index_select(0, own) - shift.index_select(0, own)
        arrays = [each.detach().numpy() for each in (h, weight, own, scores)]
        parallel.run_pieces(_add_dots, arrays, len(h), h.numel() // SMALL)
        ctx.save_for_backward(h, weight, own, shared, used)
        ctx.sparse, ctx.biases = sparse, bias.shape
        return scores, others

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, own, shared, used = ctx.saved_tensors
        grad_own, grad_others = (gradient.contiguous() for gradient in grad_output)
        size, width, shape = len(h), h.shape[1], weight.shape
        grad_h = None
        if ctx.needs_input_grad[0]:
            grad_h = torch.mm(grad_others, used)
            arrays = [each.detach().numpy() for each in (grad_own, weight, own, grad_h)]
            parallel.run_pieces(_add_rows, arrays, size, h.numel() // SMALL)
        groups = Groups(torch.cat([own, shared]))
        grad_weight, grad_bias = h.new_empty(len(groups.unique), width), h.new_empty(len(groups.unique))
        of_shared = torch.mm(grad_others.T, h), grad_others.sum(0)  # [N, H], [N]
        arrays = [each.detach().numpy() for each in (grad_own, h, *of_shared)]
        groups.run(width, _sum_groups, *arrays, groups.order, groups.starts, grad_weight.numpy(), grad_bias.numpy())
        unique = torch.from_numpy(groups.unique)
        of_weight = rows_gradient(unique, grad_weight, shape, ctx.sparse)
        return grad_h, of_weight, rows_gradient(unique, grad_bias, ctx.biases, ctx.sparse), None, None, None, None


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_dots(h: Array, weight: Array, rows: Array, scores: Array, first: int, last: int) -> None:
    """scores[b] += h[b] . weight[rows[b]]."""
    for b in range(first, last):
        row, total = np.uint64(rows[b]), h.dtype.type(0)  # a literal 0 would make it float64
        for j in range(h.shape[1]):
            total += h[b, j] * weight[row, j]
        scores[b] += total


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_rows(factors: Array, weight: Array, rows: Array, sums: Array, first: int, last: int) -> None:
    """sums[b] += factors[b] weight[rows[b]]."""
    for b in range(first, last):
        row, factor = np.uint64(rows[b]), factors[b]
        for j in range(sums.shape[1]):
            sums[b, j] += factor * weight[row, j]


@njit(cache=True, nogil=True, fastmath=FAST)
def _sum_groups(
    grad_own: Array,
    h: Array,
    shared_weight: Array,
    shared_bias: Array,
    order: Array,
    starts: Array,
    grad_weight: Array,
    grad_bias: Array,
    first: int,
    last: int,
) -> None:
    """The gradients of the rows u: places below B are examples, with grad_own[p] h[p]; the others shared rows."""
    size, width = h.shape
    for u in range(first, last):
        total = h.dtype.type(0)
        for j in range(width):
            grad_weight[u, j] = 0
        for k in range(starts[u], starts[u + 1]):
            place = np.uint64(order[k])
            if place < np.uint64(size):
                factor = grad_own[place]
                total += factor
                for j in range(width):
                    grad_weight[u, j] += factor * h[place, j]
            else:
                place -= np.uint64(size)
                total += shared_bias[place]
                for j in range(width):
                    grad_weight[u, j] += shared_weight[place, j]
        grad_bias[u] = total
