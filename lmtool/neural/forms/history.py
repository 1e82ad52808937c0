"""The sums of FOFE without the vectors of all words of all contexts, `[B, T, E]`.

Where examples follow one another in the text, as in scoring and in batches of training.consecutive, their contexts are
one sequence, each of whose words is looked up once, and the sums are a product with a banded matrix. Where they do not,
compiled loops go from the embeddings' rows to the sums at once.

Legend of shapes: B examples, T words of a context, the last C of them read one by one, K sums, E dimension of the
embeddings, V words of the vocabulary, R runs of up to N examples that follow one another, S = T + N - 1 words of a run.
"""

from __future__ import annotations

from typing import Any

import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmtool.neural.encoders.history import CONSECUTIVE, History
from lmtool.neural.forms import form
from lmtool.neural.forms.loops import FAST, Array, Groups, as_arrays, compiled, rows_gradient
from lmtool.neural.rows import rows_of
from lmtool.system import parallel

FEWEST_NUMBERS = 1 << 18  # of the vectors of all words of all contexts, below which the plain method is faster


def _serves(layer: History, contexts: Tensor) -> bool:
    numbers = contexts.numel() * layer.scale.shape[1]
    return contexts.is_cpu and compiled(layer.weights) and numbers >= FEWEST_NUMBERS


@form(History, "words_and_sums", serves=_serves, measured="3.1 to 4.5 times; EPYC Zen 5, 2026-11-25")
def history(layer: History, ids: Tensor, vectors: Tensor, sparse: bool) -> Tensor:
    """Compute the vectors of the last C words and the sums, `[B, C + K, E]`."""
    size, length = ids.shape
    words, places = ids.new_empty(size, length + CONSECUTIVE - 1), ids.new_empty(size)
    runs = _find_runs(ids.numpy(), words.numpy(), places.numpy())
    if not runs or runs * 2 > size:  # most contexts do not follow the one before
        x: Tensor = _WordsAndSums.apply(vectors, ids, layer.weights, layer.words, sparse)  # type: ignore[no-untyped-call]
        return x
    x = _sums_of_runs(rows_of(vectors, words[:runs], sparse=sparse), layer.weights, layer.words)
    return x if runs * CONSECUTIVE == size else x.index_select(0, places)


def _sums_of_runs(x: Tensor, factors: Tensor, words: int) -> Tensor:
    """Compute the vectors of the last words, and the sums, of all windows of runs: `[R N, C + K, E]`.

    x: of the words of the runs, `[R, S, E]`. Window i of a run begins at its word i: the sums of all its windows are
    A x, with A `[K N, S]`, in which row (k, i) has the factors of k from column i on.
    """
    (sums, length), (_, size, dim) = factors.shape, x.shape
    # Rows of S + 1 numbers that are read as rows of S begin one place further right from row to row.
    banded = F.pad(factors, (0, CONSECUTIVE)).repeat(1, CONSECUTIVE)[:, : CONSECUTIVE * size].reshape(-1, size)
    of_sums = (banded @ x).view(-1, sums, CONSECUTIVE, dim).transpose(1, 2)  # [R, N, K, E]
    read = x[:, length - words :].unfold(1, words, 1).transpose(2, 3)  # [R, N, C, E]
    return torch.cat([read, of_sums], dim=2).flatten(0, 1)


@njit(cache=True, nogil=True)
def _find_runs(ids: Array, words: Array, places: Array) -> int:
    """Write the words `[R, S]` of the runs of contexts `[B, T]` and the place of each; returns R."""
    size, length = ids.shape
    run, windows = -1, CONSECUTIVE
    for b in range(size):
        follows = windows < CONSECUTIVE
        if follows:
            for t in range(length - 1):
                follows &= ids[b, t] == ids[b - 1, t + 1]
        if follows:
            windows += 1
            words[run, length + windows - 2] = ids[b, length - 1]
        else:
            run, windows = run + 1, 1
            words[run, :length] = ids[b]
            words[run, length:] = ids[b, 0]  # of windows that are of no example
        places[b] = run * CONSECUTIVE + windows - 1
    return run + 1


class _WordsAndSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, ids: Tensor, factors: Tensor, words: int, sparse: bool) -> Tensor:
        vectors, factors = vectors.contiguous(), factors.contiguous()
        ctx.save_for_backward(vectors, ids, factors)
        ctx.sparse = sparse
        x = vectors.new_empty(len(ids), words + len(factors), vectors.shape[1])
        arrays = as_arrays(vectors, ids, factors, x)
        parallel.run((_sums, *arrays, *cut) for cut in parallel.cut_evenly(len(ids)))
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        vectors, ids, factors = ctx.saved_tensors
        grad = grad_output[0].contiguous()
        arrays = as_arrays(vectors, ids, grad)
        cuts = parallel.cut_evenly(len(ids))
        totals = factors.new_zeros(len(cuts), *factors.shape, dtype=torch.float64)
        parallel.run(
            (_sums_grad_factors, *arrays, total.numpy(), *cut) for total, cut in zip(totals, cuts, strict=True)
        )
        grad_factors = totals.sum(0).to(factors.dtype)
        groups = Groups(ids.reshape(-1))
        rows = vectors.new_empty(len(groups.unique), vectors.shape[1])
        g, a, rows_ = as_arrays(grad, factors, rows)
        width = vectors.shape[1] * len(factors)
        groups.run(width, _sums_grad_vectors, g, a, groups.order, groups.starts, rows_)
        unique = torch.from_numpy(groups.unique)
        return rows_gradient(unique, rows, vectors.shape, ctx.sparse), None, grad_factors, None, None


@njit(cache=True, nogil=True, fastmath=FAST)
def _sums(vectors: Array, ids: Array, factors: Array, x: Array, first: int, last: int) -> None:
    sums, length = factors.shape
    width = vectors.shape[1]
    words = x.shape[1] - sums
    for b in range(first, last):
        for k in range(sums):
            for j in range(width):
                x[b, words + k, j] = 0
        t = 0
        while t + 4 <= length:  # four at a time: the sums are read and written once for them
            r0, r1, r2, r3 = vectors[ids[b, t]], vectors[ids[b, t + 1]], vectors[ids[b, t + 2]], vectors[ids[b, t + 3]]
            for k in range(sums):
                row, of_sum = x[b, words + k], factors[k]
                f0, f1, f2, f3 = of_sum[t], of_sum[t + 1], of_sum[t + 2], of_sum[t + 3]
                for j in range(width):
                    row[j] += (f0 * r0[j] + f1 * r1[j]) + (f2 * r2[j] + f3 * r3[j])
            t += 4
        while t < length:
            r0 = vectors[ids[b, t]]
            for k in range(sums):
                row, f0 = x[b, words + k], factors[k, t]
                for j in range(width):
                    row[j] += f0 * r0[j]
            t += 1
        for c in range(words):
            row, r0 = x[b, c], vectors[ids[b, length - words + c]]
            for j in range(width):
                row[j] = r0[j]


@njit(cache=True, nogil=True, fastmath=FAST)
def _sums_grad_factors(vectors: Array, ids: Array, grad: Array, totals: Array, first: int, last: int) -> None:
    """Add to totals `[K, T]`, in float64, what the examples from first to before last make of the gradient."""
    sums, length = totals.shape
    width = vectors.shape[1]
    words = grad.shape[1] - sums
    for b in range(first, last):
        for t in range(length):
            row = vectors[ids[b, t]]
            for k in range(sums):
                of_sum, product = grad[b, words + k], vectors.dtype.type(0)
                for j in range(width):
                    product += of_sum[j] * row[j]
                totals[k, t] += product


@njit(cache=True, nogil=True, fastmath=FAST)
def _sums_grad_vectors(
    grad: Array, factors: Array, order: Array, starts: Array, grad_vectors: Array, first: int, last: int
) -> None:
    sums, length = factors.shape
    width = grad.shape[2]
    words = grad.shape[1] - sums
    for u in range(first, last):
        for j in range(width):
            grad_vectors[u, j] = 0
        for place in range(starts[u], starts[u + 1]):
            b, t = order[place] // length, order[place] % length
            for k in range(sums):
                factor = factors[k, t]
                for j in range(width):
                    grad_vectors[u, j] += factor * grad[b, words + k, j]
            c = t - (length - words)
            if c >= 0:
                for j in range(width):
                    grad_vectors[u, j] += grad[b, c, j]
