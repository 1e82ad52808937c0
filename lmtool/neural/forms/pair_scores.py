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
from lmtool.neural.forms.loops import FAST, Groups, as_arrays, over_segments, rows_gradient, runs_compiled
from lmtool.neural.rows import Pairs, RowScores
from lmtool.system.arrays import Array


def _serves(layer: RowScores, h: Tensor) -> bool:
    return runs_compiled(h) and h.dtype == layer.bias.dtype


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
        (h, weight), pairs, grad = ctx.saved_tensors, ctx.pairs, grad_output[0].contiguous()
        g, h_, weight_, starts, rows, owner = as_arrays(grad, h, weight, pairs.starts, pairs.rows, pairs.owner)
        groups, grad_h = Groups(pairs.rows), torch.empty_like(h)
        grad_weight = h.new_empty(len(groups.unique), h.shape[1])
        over_segments(_sum_products, [g, weight_, starts, rows, grad_h.numpy()], starts, h.shape[1])
        g, starts, owner = g[groups.order], groups.starts, owner[groups.order]
        over_segments(_sum_products, [g, h_, starts, owner, grad_weight.numpy()], starts, h.shape[1])
        grad_bias, unique = np.add.reduceat(g, starts[:-1]) if len(g) else g, torch.from_numpy(groups.unique)
        of_weight = rows_gradient(unique, grad_weight, weight.shape, ctx.sparse[0])
        of_bias = rows_gradient(unique, torch.from_numpy(grad_bias), ctx.biases, ctx.sparse[1])
        return grad_h, of_weight, of_bias, None, None


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
def _sum_products(
    factors: Array, matrix: Array, starts: Array, rows: Array, sums: Array, first: int, last: int
) -> None:
    """Compute sums[k] = sum of factors[p] matrix[rows[p]] over the places p of segment k."""
    width = matrix.shape[1]
    for k in range(first, last):
        for j in range(width):
            sums[k, j] = 0
        p, end = starts[k], starts[k + 1]
        while p + 4 <= end:  # four at a time: the sums are read and written once for all four
            r0, r1 = np.uint32(rows[p]), np.uint32(rows[p + 1])
            r2, r3 = np.uint32(rows[p + 2]), np.uint32(rows[p + 3])
            f0, f1, f2, f3 = factors[p], factors[p + 1], factors[p + 2], factors[p + 3]
            for j in range(width):
                sums[k, j] += (f0 * matrix[r0, j] + f1 * matrix[r1, j]) + (f2 * matrix[r2, j] + f3 * matrix[r3, j])
            p += 4
        while p < end:
            row, factor = np.uint32(rows[p]), factors[p]
            for j in range(width):
                sums[k, j] += factor * matrix[row, j]
            p += 1
