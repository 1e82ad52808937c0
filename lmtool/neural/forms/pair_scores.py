"""Scores of matrix rows that differ from example to example, by loops over the pairs of example and row.

The plain form, RowScores.pair_scores, gathers a row for each pair, `[P, H]`, and the gradient of each; here rows are
read in place, and gradients are summed row by row. tests/neural/test_forms.py compares both.

Legend of shapes: B examples, H dimension, R rows of a matrix `[R, H]`, P pairs (example, row), of which those of
example b are starts[b] to before starts[b + 1], U different rows among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmtool.neural.forms import form
from lmtool.neural.forms.loops import FAST, Groups, as_arrays, compiled, over_segments, rows_gradient
from lmtool.neural.rows import Pairs, RowScores
from lmtool.system.arrays import Array


def _serves(layer: RowScores, h: Tensor) -> bool:
    return compiled(h) and h.dtype == layer.bias.dtype


@form(RowScores, "pair_scores", serves=_serves, measured="1.0 to 16 times; EPYC Zen 5, 2026-11-25")
def pair_scores(layer: RowScores, h: Tensor, pairs: Pairs) -> Tensor:
    """Compute vectors[r] . h[b] + bias[r] of each pair (b, r): `[P]`."""
    scores: Tensor = _PairScores.apply(  # type: ignore[no-untyped-call]
        h, *layer.weights(), pairs, layer.sparse
    )
    return scores


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, pairs: Pairs, sparse: bool) -> Tensor:
        h = h.contiguous()
        ctx.save_for_backward(h, weight)
        ctx.pairs, ctx.sparse, ctx.biases = pairs, [sparse and x.is_leaf for x in (weight, bias)], bias.shape
        scores = h.new_empty(len(pairs.rows))
        arrays = as_arrays(h, weight, bias, pairs.starts, pairs.rows, scores)
        over_segments(_dot_rows, arrays, arrays[3], h.shape[1])
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Any, ...]:
        h, weight = ctx.saved_tensors
        pairs, (sparse, sparse_bias), grad = ctx.pairs, ctx.sparse, grad_output[0].contiguous()
        width, grad_h = h.shape[1], torch.empty_like(h)
        if ctx.needs_input_grad[0]:
            arrays = as_arrays(grad, weight, pairs.starts, pairs.rows, grad_h)
            over_segments(_dot_rows_grad_h, arrays, arrays[2], width)
        groups = Groups(pairs.rows)
        grad_weight, grad_bias = h.new_empty(len(groups.unique), width), h.new_empty(len(groups.unique))
        g, h_, owner, weight_, bias_ = as_arrays(grad, h, pairs.owner, grad_weight, grad_bias)
        arrays = [g, h_, owner, groups.order, groups.starts, weight_, bias_]
        over_segments(_dot_rows_grad_weight, arrays, groups.starts, width)
        shape, unique = weight.shape, torch.from_numpy(groups.unique)
        return (
            grad_h,
            rows_gradient(unique, grad_weight, shape, sparse),
            rows_gradient(unique, grad_bias, ctx.biases, sparse_bias),
            None,
            None,
        )


@njit(cache=True, nogil=True, fastmath=FAST)
def _dot_rows(
    h: Array, weight: Array, bias: Array, starts: Array, rows: Array, scores: Array, first: int, last: int
) -> None:
    """Compute scores[p] = h[b] . weight[rows[p]] + bias[rows[p]] for the pairs p of the examples b.

    Rows are unsigned: an index that may be negative costs a test in each access.
    """
    width = h.shape[1]
    for b in range(first, last):
        for p in range(starts[b], starts[b + 1]):
            row = np.uint32(rows[p])
            total = h.dtype.type(0)  # a literal 0 would make it float64
            for j in range(width):
                total += h[b, j] * weight[row, j]
            scores[p] = total + bias[row]


@njit(cache=True, nogil=True, fastmath=FAST)
def _dot_rows_grad_h(
    grad: Array, weight: Array, starts: Array, rows: Array, grad_h: Array, first: int, last: int
) -> None:
    """Compute grad_h[b] = sum of grad[p] weight[rows[p]] over the pairs p of example b."""
    width = weight.shape[1]
    for b in range(first, last):
        for j in range(width):
            grad_h[b, j] = 0
        p, end = starts[b], starts[b + 1]
        while p + 4 <= end:  # four at a time: the sums are read and written once for all four
            r0, r1 = np.uint32(rows[p]), np.uint32(rows[p + 1])
            r2, r3 = np.uint32(rows[p + 2]), np.uint32(rows[p + 3])
            g0, g1, g2, g3 = grad[p], grad[p + 1], grad[p + 2], grad[p + 3]
            for j in range(width):
                grad_h[b, j] += (g0 * weight[r0, j] + g1 * weight[r1, j]) + (g2 * weight[r2, j] + g3 * weight[r3, j])
            p += 4
        while p < end:
            row, g = np.uint32(rows[p]), grad[p]
            for j in range(width):
                grad_h[b, j] += g * weight[row, j]
            p += 1


@njit(cache=True, nogil=True, fastmath=FAST)
def _dot_rows_grad_weight(
    grad: Array,
    h: Array,
    owner: Array,
    order: Array,
    starts: Array,
    grad_weight: Array,
    grad_bias: Array,
    first: int,
    last: int,
) -> None:
    """Compute grad_weight[u] = sum of grad[p] h[owner[p]] and grad_bias[u] = sum of grad[p] over the pairs p of group
    u.
    """
    width = h.shape[1]
    for u in range(first, last):
        total = h.dtype.type(0)
        for j in range(width):
            grad_weight[u, j] = 0
        k, end = starts[u], starts[u + 1]
        while k + 4 <= end:
            p0, p1, p2, p3 = order[k], order[k + 1], order[k + 2], order[k + 3]
            b0, b1, b2, b3 = (np.uint32(owner[p0]), np.uint32(owner[p1]), np.uint32(owner[p2]), np.uint32(owner[p3]))
            g0, g1, g2, g3 = grad[p0], grad[p1], grad[p2], grad[p3]
            total += (g0 + g1) + (g2 + g3)
            for j in range(width):
                grad_weight[u, j] += (g0 * h[b0, j] + g1 * h[b1, j]) + (g2 * h[b2, j] + g3 * h[b3, j])
            k += 4
        while k < end:
            p = order[k]
            b, g = np.uint32(owner[p]), grad[p]
            total += g
            for j in range(width):
                grad_weight[u, j] += g * h[b, j]
            k += 1
        grad_bias[u] = total
