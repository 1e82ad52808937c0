"""FOFE, the fixed-size ordinally forgetting encoding of long contexts (Zhang et al. 2015): the last words one by one,
and sums over all words in which older ones count less.

On a CPU the vectors of all words of all contexts, `[B, T, E]`, are never made. Where examples follow one another in the
text, as in scoring and in batches of training.consecutive, their contexts are one sequence, each of whose words is
looked up once, and the sums are a product with a banded matrix. Where they do not, compiled loops go from the
embeddings' rows to the sums at once. Elsewhere the plain form beside them does it.

Legend of shapes: B examples, T words of a context, the last C of them read one by one, K sums, E dimension of the
embeddings, V words of the vocabulary, R runs of up to N examples that follow one another, S = T + N - 1 words of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor, nn

from lmtool.neural.checks import all_below
from lmtool.neural.kernels.loops import FAST
from lmtool.neural.kernels.sparse_rows import Groups, compiled, lookup, rows_gradient, sums_of_rows
from lmtool.system import parallel

Array = npt.NDArray[Any]
RUN = 8  # examples of a run at most


class History(nn.Module):
    """z_k = sum_t a_kt C(w_-t): FOFE (Zhang et al. 2015, eq. 1) for several forgetting factors alpha_k.

    a_kt starts as alpha_k^(t-1), of unit length over t, and is learned, one weight for each distance t, as is a scale
    for each component of z_k.
    """

    decays: ClassVar[dict[str, bool]] = {"scale": False}  # a gain, which starts at 1

    def __init__(self, forgetting: list[float], length: int, words: int, dim: int) -> None:
        """forgetting: alpha, K of them, above 0 and at most 1. length: T. words: C. dim: E."""
        super().__init__()
        age = torch.arange(length - 1, -1, -1)
        powers = torch.tensor(forgetting)[:, None] ** age
        self.weights = nn.Parameter(nn.functional.normalize(powers, dim=1))  # [K, T]
        self.scale = nn.Parameter(torch.ones(len(forgetting), dim))
        self._words = words

    def forward(self, contexts: Tensor, vectors: Tensor, *, sparse: bool) -> Tensor:
        """The vectors of the last C words, then the K sums, `[B, C + K, E]`, of contexts `[B, T]`, oldest word first.

        contexts: ids, int64. vectors: embeddings `[V, E]`. sparse: whether their gradient is sparse.
        """
        x = words_and_sums(vectors, contexts, self.weights, self._words, sparse=sparse)
        return torch.cat([x[:, : self._words], x[:, self._words :] * self.scale], dim=1)


def words_and_sums(vectors: Tensor, ids: Tensor, factors: Tensor, words: int, *, sparse: bool) -> Tensor:
    """The vectors of the last `words` ids and the sums of all with `factors` `[K, T]`: `[B, words + K, E]`.

    Raises IndexError for ids out of range.
    """
    if not compiled(vectors):
        return words_and_sums_plain(vectors, ids, factors, words, sparse=sparse)
    if not all_below(ids.numpy().ravel(), len(vectors)):
        raise IndexError("ids out of range")
    ids = ids.contiguous()
    runs = _Runs.of(ids)
    if runs is None:
        x: Tensor = _WordsAndSums.apply(vectors, ids, factors, words, sparse)  # type: ignore[no-untyped-call]
    else:
        x = _OfRuns.apply(vectors, factors, runs, words, sparse)  # type: ignore[no-untyped-call]
    return x


def words_and_sums_plain(vectors: Tensor, ids: Tensor, factors: Tensor, words: int, *, sparse: bool) -> Tensor:
    """words_and_sums in ordinary tensor operations."""
    x = lookup(vectors, ids, sparse=sparse)  # [B, T, E]
    return torch.cat([x[:, x.shape[1] - words :], factors @ x], dim=1)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Contexts that are windows of sequences. words: ids `[R, S]`. places: of the examples among the R x N windows,
    `[B]`; None where they are all of them, in this order.
    """

    words: Tensor
    places: Tensor | None

    @classmethod
    def of(cls, ids: Tensor) -> _Runs | None:
        """The runs of contexts `[B, T]`; None where most contexts do not follow the one before."""
        size, length = ids.shape
        words, places = ids.new_empty(size, length + RUN - 1), ids.new_empty(size)
        runs = _find_runs(ids.numpy(), words.numpy(), places.numpy())
        if not runs or runs * 2 > size:
            return None
        return cls(words[:runs], None if runs * RUN == size else places)

    def of_examples(self, windows: Tensor) -> Tensor:
        """`[B, ...]` of the examples, from `[R x N, ...]` of all windows."""
        return windows if self.places is None else windows.index_select(0, self.places)

    def of_windows(self, examples: Tensor) -> Tensor:
        """`[R, N, ...]` of all windows from `[B, ...]` of the examples, 0 for windows that are of none."""
        shape = len(self.words), RUN, *examples.shape[1:]
        if self.places is None:
            return examples.reshape(shape)
        return examples.new_zeros(shape).view(-1, *shape[2:]).index_copy_(0, self.places, examples).view(shape)


class _OfRuns(torch.autograd.Function):
    """Window i of a run begins at its word i: the sums of all its windows are A X, with X `[S, E]` the vectors of its
    words and A `[N K, S]`, in which row (i, k) has the K factors from column i on.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, factors: Tensor, runs: _Runs, words: int, sparse: bool) -> Tensor:
        of_words = vectors.index_select(0, runs.words.view(-1)).view(*runs.words.shape, -1)  # [R, S, E]
        banded = _banded(factors)
        ctx.save_for_backward(of_words, banded)
        ctx.runs, ctx.words, ctx.sparse = runs, words, sparse
        ctx.shapes = vectors.shape, factors.shape
        sums = (banded @ of_words).view(-1, len(factors), vectors.shape[1])  # [R N, K, E]
        read = _windows(of_words, factors.shape[1] - words, words).flatten(0, 1)  # [R N, C, E]
        return runs.of_examples(torch.cat([read, sums], dim=1))

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        of_words, banded = ctx.saved_tensors
        runs, words = ctx.runs, ctx.words
        shape, (sums, length) = ctx.shapes
        grad = runs.of_windows(grad_output[0])  # [R, N, C + K, E]
        of_sums = grad[:, :, words:].flatten(1, 2)  # [R, N K, E]
        grad_words = banded.T @ of_sums  # [R, S, E]
        for place in range(words):
            first = length - words + place
            grad_words[:, first : first + RUN] += grad[:, :, place]
        by_place = (of_sums @ of_words.transpose(1, 2)).sum(0).view(RUN, sums, -1)  # [N, K, S]
        grad_factors = _bands(by_place, length).sum(0)
        unique, rows = sums_of_rows(runs.words.view(-1), grad_words.flatten(0, 1))
        return rows_gradient(unique, rows, shape, ctx.sparse), grad_factors, None, None, None


def _banded(factors: Tensor) -> Tensor:
    """A `[N K, S]` of factors `[K, T]`."""
    sums, length = factors.shape
    matrix = factors.new_zeros(RUN, sums, length + RUN - 1)
    _bands(matrix, length).copy_(factors.expand(RUN, -1, -1))
    return matrix.flatten(0, 1)


def _bands(matrix: Tensor, length: int) -> Tensor:
    """What stands in each row of a contiguous matrix `[N, K, S]` from its column i on: a view `[N, K, T]`."""
    rows, sums, columns = matrix.shape
    return matrix.as_strided((rows, sums, length), (sums * columns + 1, columns, 1))


def _windows(of_words: Tensor, first: int, words: int) -> Tensor:
    """The `words` vectors from place first on of each window: a view `[R, N, words, E]` of `[R, S, E]`."""
    runs, places, dim = of_words.shape
    return of_words.as_strided((runs, RUN, words, dim), (places * dim, dim, dim, 1), first * dim)


@njit(cache=True, nogil=True)
def _find_runs(ids: Array, words: Array, places: Array) -> int:
    """Write the words `[R, S]` of the runs of contexts `[B, T]` and the place of each; returns R."""
    size, length = ids.shape
    run, windows = -1, RUN
    for b in range(size):
        follows = windows < RUN
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
        places[b] = run * RUN + windows - 1
    return run + 1


class _WordsAndSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, ids: Tensor, factors: Tensor, words: int, sparse: bool) -> Tensor:
        vectors, factors = vectors.contiguous(), factors.contiguous()
        ctx.save_for_backward(vectors, ids, factors)
        ctx.sparse = sparse
        x = vectors.new_empty(len(ids), words + len(factors), vectors.shape[1])
        arrays = [tensor.detach().numpy() for tensor in (vectors, ids, factors, x)]
        parallel.run((_sums, *arrays, *cut) for cut in parallel.cut_evenly(len(ids)))
        return x

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        vectors, ids, factors = ctx.saved_tensors
        grad = grad_output[0].contiguous()
        arrays = [tensor.detach().numpy() for tensor in (vectors, ids, grad)]
        cuts = parallel.cut_evenly(len(ids))
        totals = factors.new_zeros(len(cuts), *factors.shape, dtype=torch.float64)
        parallel.run(
            (_sums_grad_factors, *arrays, total.numpy(), *cut) for total, cut in zip(totals, cuts, strict=True)
        )
        grad_factors = totals.sum(0).to(factors.dtype)
        groups = Groups(ids.reshape(-1))
        rows = vectors.new_empty(len(groups.unique), vectors.shape[1])
        g, a, rows_ = (tensor.detach().numpy() for tensor in (grad, factors, rows))
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
