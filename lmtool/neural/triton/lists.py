"""Logistic losses over a list of rows for each example, in Triton: the hierarchical softmax and NCE with own noise.

Legend of shapes: B examples, D dimension of the hidden, R rows of a matrix `[R, D]`, M most rows of a list, U different
rows among those of a batch.

The forward pass keeps the derivative of each score, `[B, M]`, a D-th of what the plain form keeps; the backward pass is
one kernel, which reads the rows again (they are in the L2 cache) and writes every gradient. It could be one with the
forward pass, but then all gradients, the dense ones too, would be scaled in a pass of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmtool.neural.kernels.sparse_rows import rows_gradient
from lmtool.neural.triton import list_kernels
from lmtool.neural.triton.launching import contiguous, launch, row_blocks


@dataclass(frozen=True)
class RowLists:
    """Which rows each example has, and with which signs.

    words `[B]` and offsets `[L + 1]`, int64: the list of example b is offsets[words[b]] to before offsets[words[b] + 1]
    of rows; None where rows are `[B, M]`. bits, uint8 as rows are: 1 for a sign of +; None for + first, - for the
    others. most: M.
    """

    rows: Tensor
    most: int
    words: Tensor | None = None
    offsets: Tensor | None = None
    bits: Tensor | None = None


def list_losses(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    lists: RowLists,
    *,
    sparse: bool,
    shift: Tensor | None = None,
    terms: Tensor | None = None,
) -> Tensor:
    """Sum over the list of each example of -log sigmoid(sign s), `[B]`, float32, with gradients.

    s = weight[r] . h + bias[r] - shift[r] + term, of h `[B, D]`, weight `[R, D]`, bias `[R]`, shift `[R]`, which has no
    gradient, and terms `[B]`. sparse: whether the gradients of weight and bias are; sparse ones, and dense ones under
    torch.use_deterministic_algorithms, are summed in an order that repeats.
    """
    losses: Tensor = _ListLosses.apply(h, weight, bias, terms, shift, lists, sparse)  # type: ignore[no-untyped-call]
    return losses


class _ListLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        terms: Tensor | None,
        shift: Tensor | None,
        lists: RowLists,
        sparse: bool,
    ) -> Tensor:
        size = len(h)
        ordered = sparse or torch.are_deterministic_algorithms_enabled()
        sums = h.new_empty(size, dtype=torch.float32)
        deltas = h.new_empty(size, lists.most, dtype=torch.float32)
        places = h.new_full((size, lists.most), len(weight), dtype=torch.int32) if ordered else None
        inputs = contiguous(h, weight, bias, shift, terms, lists.words, lists.offsets, lists.rows, lists.bits)
        blocks = row_blocks(h.shape[1], lists.most)
        launch(list_kernels.losses, (size,), h, *inputs, sums, deltas, places, lists.most, **blocks)
        ctx.save_for_backward(h, weight, bias, terms, deltas, places)
        ctx.lists, ctx.sparse = lists, sparse
        return sums

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, bias, terms, deltas, places = ctx.saved_tensors
        lists: RowLists = ctx.lists
        scales = grad_output[0].float().contiguous()
        grad_h = torch.empty_like(h, memory_format=torch.contiguous_format)
        grad_terms = None if terms is None else torch.empty_like(scales)
        at_once: list[Tensor | None] = [None, None]  # gradients of weight and bias that the kernel adds to
        if places is None:
            at_once = [torch.zeros_like(tensor, dtype=torch.float32) for tensor in (weight, bias)]
        inputs = contiguous(h, weight, lists.words, lists.offsets, lists.rows)
        blocks = row_blocks(h.shape[1], lists.most)
        outputs = grad_h, grad_terms, *at_once
        launch(list_kernels.gradients, (len(h),), h, *inputs, deltas, scales, *outputs, lists.most, **blocks)
        if places is None:
            in_type = [None if grad is None else grad.to(weight.dtype) for grad in at_once]
        else:
            in_type = _sums_in_order(h, weight, bias, deltas, scales, places, ctx.sparse)
        return grad_h, *in_type, None if grad_terms is None else grad_terms.to(terms.dtype), None, None, None


def _sums_in_order(
    h: Tensor, weight: Tensor, bias: Tensor, deltas: Tensor, scales: Tensor, places: Tensor, sparse: bool
) -> list[Tensor | None]:
    """The gradients of weight and bias, each row's examples in their order; rows `[B, M]`: R where a list has ended."""
    rows, order = places.reshape(-1).sort(stable=True)
    if sparse:  # their number has to be known here, which waits for the device
        unique, counts = torch.unique_consecutive(rows, return_counts=True)
        used = int((unique < len(weight)).sum())
        unique, starts = unique[:used].long(), torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    else:
        every = torch.arange(len(weight) + 1, dtype=rows.dtype, device=h.device)
        unique, starts = every[:-1], torch.searchsorted(rows, every)
    grad_weight = h.new_empty(len(unique), h.shape[1], dtype=torch.float32)
    grad_bias = h.new_empty(len(unique), dtype=torch.float32)
    inputs = *contiguous(h), deltas, scales, order, starts
    outputs, most = (grad_weight, grad_bias), max(places.shape[1], 1)
    blocks = row_blocks(h.shape[1], 16)
    launch(list_kernels.segment_sums, (len(unique),), h, *inputs, *outputs, most, **blocks)
    grad_weight, grad_bias = grad_weight.to(weight.dtype), grad_bias.to(bias.dtype)
    if not sparse:
        return [grad_weight, grad_bias]
    return [rows_gradient(unique, grad_weight, weight.shape, True), rows_gradient(unique, grad_bias, bias.shape, True)]
