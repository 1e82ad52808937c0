"""Work on the rows of a large matrix that a batch uses, and on no others: each function beside its plain form.

On a CPU, in float32 and float64, compiled loops (kernels.loops) do the work; elsewhere the plain forms, which are
ordinary tensor operations. Gradients of the matrices are sparse (their used rows alone) or dense, as the caller says;
sparse ones are coalesced, as torch.sparse_coo_tensor means it, and any optimiser that takes them will do.

Legend of shapes: B examples, H dimension, R rows of a matrix `[R, H]`, P pairs (example, row), U different rows among
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels import loops
from lmtool.system import parallel

SMALL = 1 << 17  # numbers to read for which a second thread is not worth its start
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Pairs:
    """Which rows of a matrix each example of a batch uses.

    rows: `[P]`, int32 or int64; those of example b are starts[b] to before starts[b + 1]; starts: `[B + 1]`, int64;
    owner: `[P]`, the b of each.
    """

    rows: Tensor
    starts: Tensor
    owner: Tensor


def pairs_of(rows: Tensor) -> Pairs:
    """Pairs from rows `[B, K]`, int64, the same number for every example."""
    size, per_example = rows.shape
    starts = torch.arange(size + 1) * per_example
    owner = torch.arange(size, dtype=torch.int32, device=rows.device).repeat_interleave(per_example)
    return Pairs(rows.reshape(-1), starts, owner)


def segments(offsets: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The places offsets[w] to before offsets[w + 1] for each w of chosen `[B]`, one after the other; all int64.

    Returns where each segment begins among them `[B + 1]`, the b of each place `[P]`, and the places `[P]`.
    """
    first = offsets.index_select(0, chosen)  # where offsets[chosen] would take -1 for the last one
    sizes = offsets.index_select(0, chosen + 1) - first
    starts = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    owner = torch.arange(len(chosen), device=chosen.device).repeat_interleave(sizes)
    places = torch.arange(len(owner), device=chosen.device) + (first - starts[:-1])[owner]
    return starts, owner, places


def log_sum_exp(values: Tensor, starts: Tensor, owner: Tensor) -> Tensor:
    """log-sum-exp over each segment of values `[P]`: `[B]`; starts and owner as `segments` returns them."""
    largest = torch.segment_reduce(values.detach(), "max", offsets=starts)
    return largest + torch.zeros_like(largest).index_add_(0, owner, (values - largest[owner]).exp()).log()


def compiled(tensor: Tensor) -> bool:
    """Whether the compiled loops can work on a tensor: on a CPU, in float32 and float64."""
    return on_cpu(tensor) and tensor.dtype in (torch.float32, torch.float64)


def lookup(weight: Tensor, ids: Tensor, *, sparse: bool) -> Tensor:
    """weight[ids]: `[..., H]` from weight `[R, H]` and ids `[...]`, int64, or `[...]` from weight `[R]`.

    Like torch.nn.functional.embedding, but its gradient is summed row by row, and coalesced where it is sparse.
    """
    rows: Tensor = _Lookup.apply(weight, ids, sparse)  # type: ignore[no-untyped-call]
    return rows


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, sparse: bool) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape, ctx.sparse = weight.shape, sparse
        return weight.index_select(0, ids.reshape(-1)).reshape(*ids.shape, *weight.shape[1:])

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        if not (ctx.sparse or on_cpu(ids)):
            of_rows = grad_output[0].reshape(ids.numel(), *ctx.shape[1:])
            return *add_rows(ids.reshape(-1), (ctx.shape[0], of_rows)), None, None
        unique, sums = sums_of_rows(ids.reshape(-1), grad_output[0].reshape(ids.numel(), -1).contiguous())
        return rows_gradient(unique, sums.reshape(-1, *ctx.shape[1:]), ctx.shape, ctx.sparse), None, None


def add_rows(ids: Tensor, *of: tuple[int, Tensor]) -> list[Tensor]:
    """A dense gradient for each number of rows R and values `[P, ...]`: `[R, ...]`, the sum of the values of each row's
    ids `[P]`, else 0. All lie in one piece of memory.

    For a GPU: its size does not depend on the ids. Rows are added in no fixed order there, unless
    torch.use_deterministic_algorithms asks for one.
    """
    shapes = [(rows, *values.shape[1:]) for rows, values in of]
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.split(of[0][1].new_zeros(sum(sizes)), sizes)
    return [part.view(shape).index_add_(0, ids, to) for part, shape, (_, to) in zip(parts, shapes, of, strict=True)]


def sums_of_rows(ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The different ids, ascending `[U]`, and the sum of the values `[P, H]` of each, `[U, H]`."""
    if not compiled(values):
        unique, place = torch.unique(ids.long(), return_inverse=True)
        return unique, values.new_zeros(len(unique), values.shape[1]).index_add_(0, place, values)
    groups = Groups(ids)
    return torch.from_numpy(groups.unique), groups.sums(values)


def row_scores(h: Tensor, weight: Tensor, bias: Tensor, pairs: Pairs, *, sparse: bool) -> Tensor:
    """h[b] . weight[r] + bias[r] for every pair (b, r): `[P]` from h `[B, H]`, weight `[R, H]`, bias `[R]`."""
    if not compiled(h) or h.dtype != weight.dtype:
        return row_scores_plain(h, weight, bias, pairs, sparse=sparse)
    scores: Tensor = _RowScores.apply(h, weight, bias, pairs, sparse)  # type: ignore[no-untyped-call]
    return scores


def row_scores_plain(h: Tensor, weight: Tensor, bias: Tensor, pairs: Pairs, *, sparse: bool) -> Tensor:
    """row_scores in ordinary tensor operations."""
    used = lookup(weight, pairs.rows, sparse=sparse)  # [P, H]
    return (h[pairs.owner] * used).sum(1) + lookup(bias, pairs.rows, sparse=sparse)


class _RowScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, pairs: Pairs, sparse: bool) -> Tensor:
        h = h.contiguous()
        ctx.save_for_backward(h, weight)
        ctx.pairs, ctx.sparse, ctx.biases = pairs, sparse, bias.shape
        scores = h.new_empty(len(pairs.rows))
        each_example(
            pairs,
            h.shape[1],
            loops.dot_rows,
            *as_arrays(h, weight, bias, pairs.starts, pairs.rows, scores),
        )
        return scores

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Any, ...]:
        h, weight = ctx.saved_tensors
        pairs, sparse, grad = ctx.pairs, ctx.sparse, grad_output[0].contiguous()
        width, grad_h = h.shape[1], torch.empty_like(h)
        if ctx.needs_input_grad[0]:
            arrays = as_arrays(grad, weight, pairs.starts, pairs.rows, grad_h)
            each_example(pairs, width, loops.dot_rows_grad_h, *arrays)
        groups = Groups(pairs.rows)
        grad_weight, grad_bias = h.new_empty(len(groups.unique), width), h.new_empty(len(groups.unique))
        g, h_, owner, weight_, bias_ = as_arrays(grad, h, pairs.owner, grad_weight, grad_bias)
        groups.run(width, loops.dot_rows_grad_weight, g, h_, owner, groups.order, groups.starts, weight_, bias_)
        shape, unique = weight.shape, torch.from_numpy(groups.unique)
        return (
            grad_h,
            rows_gradient(unique, grad_weight, shape, sparse),
            rows_gradient(unique, grad_bias, ctx.biases, sparse),
            None,
            None,
        )


def logistic_loss(scores: Tensor, signs: Tensor) -> Tensor:
    """Sum of -log sigmoid(sign s) over scores s of any shape; signs: +1 or -1 for each, int32, or `[1]` for all."""
    if not compiled(scores):
        return -torch.nn.functional.logsigmoid(scores * signs).sum()
    loss: Tensor = _Logistic.apply(scores, signs)  # type: ignore[no-untyped-call]
    return loss


class _Logistic(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, signs: Tensor) -> Tensor:
        scores = scores.contiguous()
        ctx.save_for_backward(scores, signs)
        loss, gradient = _logistic_loss_and_gradient(scores, signs)
        ctx.gradients = [gradient]
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = take_gradients(ctx, grad_output[0], lambda: [_logistic_loss_and_gradient(*ctx.saved_tensors)[1]])
        return gradient, None


def _logistic_loss_and_gradient(scores: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(scores)
    arrays = [tensor.detach().view(-1).numpy() for tensor in (scores, signs, gradient)]
    sums = parallel.run_pieces(loops.logistic, arrays, scores.numel(), scores.numel() // SMALL)
    return scores.new_tensor(sum(sums)), gradient


def take_gradients(ctx: Any, scale: Tensor, compute: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The gradients that a forward pass left in ctx.gradients, times the scale that comes from above.

    They are given away, as autograd takes over what nobody else holds, where it would copy the rest. In a graph that is
    kept for another pass (retain_graph) they are then computed again, from tensors saved for it; in one that is not,
    reading these raises torch's own error.
    """
    gradients: list[Tensor] = compute() if ctx.gradients is None else ctx.gradients
    ctx.gradients = None
    if not on_cpu(scale) or scale != 1:  # elsewhere, to look at it would wait for the device
        gradients = [gradient.mul_(scale) for gradient in gradients]
    return gradients


class Groups:
    """The places of equal rows, side by side.

    unique: `[U]`, the different rows, ascending; order: `[P]`, the places of all rows; those of unique[u] are
    order[starts[u]] to before order[starts[u + 1]].
    """

    def __init__(self, rows: Tensor) -> None:
        array = rows.detach().numpy()
        self.order = np.empty(len(array), dtype=np.int32)
        self.unique, self.starts = loops.sort_rows(array, self.order)

    def places(self) -> Array:
        """Which of the different rows each row is: `[P]`, so that unique[places] are the rows."""
        places = np.empty(len(self.order), dtype=np.int32)
        places[self.order] = np.repeat(np.arange(len(self.unique), dtype=np.int32), np.diff(self.starts))
        return places

    def sums(self, values: Tensor) -> Tensor:
        """The sum of the values `[P, H]` of each of the different rows, `[U, H]`."""
        sums = values.new_empty(len(self.unique), values.shape[1])
        self.run(values.shape[1], loops.sum_rows, values.numpy(), self.order, self.starts, sums.numpy())
        return sums

    def run(self, width: int, kernel: Any, *arguments: Any) -> None:
        """Run a kernel over the groups, on several threads where there is enough work; width: numbers per place."""
        _on_threads(kernel, arguments, self.starts, width)


def rows_gradient(unique: Tensor, values: Tensor, shape: torch.Size, sparse: bool) -> Tensor:
    """The gradient of a matrix of this shape: values `[U, H]` in its rows `unique` `[U]`, 0 in all others."""
    if not sparse:
        return values.new_zeros(shape).index_copy_(0, unique, values)
    return torch.sparse_coo_tensor(unique[None], values, shape, is_coalesced=True, check_invariants=False)


def as_arrays(*tensors: Tensor) -> list[Array]:
    """The memory of tensors on a CPU, for compiled loops."""
    return [tensor.detach().numpy() for tensor in tensors]


def each_example(pairs: Pairs, width: int, kernel: Any, *arguments: Any) -> None:
    """Run a kernel over the examples, on several threads where there is enough work; width: numbers per pair."""
    _on_threads(kernel, arguments, pairs.starts.numpy(), width)


def _on_threads(kernel: Any, arguments: tuple[Any, ...], starts: Array, width: int) -> None:
    """The kernel over pieces of the examples or groups, cut so that each piece has as many pairs."""
    last, total = len(starts) - 1, int(starts[-1])
    pieces = min(parallel.threads(), total * width // SMALL)
    if pieces <= 1:
        kernel(*arguments, 0, last)
        return
    cuts = np.searchsorted(starts, np.arange(1, pieces) * (total // pieces)).tolist()
    ends = [0, *cuts, last]
    parallel.run((kernel, *arguments, ends[k], ends[k + 1]) for k in range(pieces))


def coalesced(gradient: Tensor) -> Tensor:
    """A sparse gradient whose rows are different and ascending.

    Autograd forgets, when it hands a gradient on, that its rows were so already; to look is faster than to sort again.
    """
    if not gradient.is_coalesced() and on_cpu(gradient):
        rows, values = gradient._indices(), gradient._values()  # the documented access to what is not coalesced
        if loops.ascending(rows[0].numpy()):
            return torch.sparse_coo_tensor(rows, values, gradient.shape, is_coalesced=True, check_invariants=False)
    return gradient.coalesce()
