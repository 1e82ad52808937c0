"""Training losses over some rows of a matrix as they are computed on a GPU: few operations, each over the whole batch,
of shapes that do not depend on the data, so that nothing waits for the device and a step can be captured as a graph.

Gradients of matrices and biases are dense (kernels.sparse_rows.add_rows); d is the gradient of scores, with which a
loss over shared rows is left after its forward pass already. kernels.loops has what a CPU does instead.

Legend of shapes: B examples, H dimension of the hidden, R rows of a matrix `[R, H]`, K rows of each example, N rows
that all examples share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.neural.kernels.sparse_rows import add_rows

ENDED = 100.0  # a score of which sigmoid is 1 in every type


def own_scores(h: Tensor, weight: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
    """h . weight[r] + bias[r] of each example's own rows r: `[B, K]`.

    h: `[B, H]`. weight: `[R, H]`. bias: `[R]`. rows: `[B, K]`, int32 or int64. Gradients of h, weight and bias.
    """
    scores: Tensor = _OwnScores.apply(h, weight, bias, rows)  # type: ignore[no-untyped-call]
    return scores


class _OwnScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1)
        used = weight.index_select(0, flat).view(*rows.shape, -1)  # [B, K, H]
        offset = bias.index_select(0, flat).view(*rows.shape, 1)
        ctx.save_for_backward(h, used, flat)
        ctx.rows = len(weight), len(bias)
        return torch.baddbmm(offset, used, h[:, :, None])[:, :, 0]

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (h, used, flat), (d,) = ctx.saved_tensors, grad_output
        grad_h = torch.bmm(d[:, None], used)[:, 0]
        of_rows = (d[:, :, None] * h[:, None]).view(len(flat), -1)
        return grad_h, *add_rows(flat, *zip(ctx.rows, (of_rows, d.reshape(-1)), strict=True)), None


def rows_of_both(weight: Tensor, bias: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """weight[r] and bias[r] of rows r `[P]`, int32 or int64: `[P, H]` and `[P]`. Gradients of weight and bias."""
    of_weight, of_bias = _RowsOfBoth.apply(weight, bias, rows)  # type: ignore[no-untyped-call]
    return of_weight, of_bias


class _RowsOfBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows)
        ctx.rows = len(weight), len(bias)
        return weight.index_select(0, rows), bias.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return *add_rows(*ctx.saved_tensors, *zip(ctx.rows, grad_output, strict=True)), None


def log_decisions(scores: Tensor, signs: Tensor, ended: Tensor | None = None) -> Tensor:
    """log sigmoid(sign s) of scores s, with gradients. signs: +1, -1, or 0 where there is no decision, whose log p is
    to be 0: `ended`, of the same shape, has ENDED there, and 0 elsewhere.
    """
    return F.logsigmoid(scores * signs if ended is None else torch.addcmul(ended, scores, signs))


def noise_loss(h: Tensor, weight: Tensor, offset: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Mean of -log sigmoid(s_y) - sum of log sigmoid(-s_w) over noise words w, s_w = weight[w] . h + offset[w].

    h: `[B, H]`. weight: `[R, H]`. offset: `[R]`. y: `[B]`, int64. noise: `[N]`, int64, the same for all examples.
    """
    loss: Tensor = _SharedLoss.apply(h, weight, offset, y, noise, _told_apart)  # type: ignore[no-untyped-call]
    return loss


def sampled_loss(h: Tensor, weight: Tensor, offset: Tensor, y: Tensor, samples: Tensor) -> Tensor:
    """Mean of -log of exp(s_y) / (exp(s_y) + sum of exp(s_w) over samples w), s_w = weight[w] . h + offset[w].

    h: `[B, H]`. weight: `[R, H]`. offset: `[R]`. y: `[B]`, int64. samples: `[N]`, int64.
    """
    loss: Tensor = _SharedLoss.apply(h, weight, offset, y, samples, _chosen)  # type: ignore[no-untyped-call]
    return loss


def _told_apart(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of log p, and the gradient of its negative by the scores `[B, 1 + N]`, those of the targets first."""
    scores[:, 1:].neg_()
    log_p = F.logsigmoid(scores)
    d: Tensor = log_p.expm1()
    d[:, 1:].neg_()
    return log_p.sum(), d


def _chosen(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of log p by the softmax of scores `[B, 1 + N]`, the target first, and the gradient of its negative."""
    log_p = scores.log_softmax(1)
    d = log_p.exp()
    d[:, 0].sub_(1)
    return log_p[:, 0].sum(), d


class _SharedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, offset: Tensor, y: Tensor, shared: Tensor, loss_of: Any) -> Tensor:
        size, words = len(h), torch.cat([y, shared])
        used, offsets = weight.index_select(0, words), offset.index_select(0, words)  # [B + N, H], [B + N]
        own = torch.baddbmm(offsets[:size, None, None], h[:, None], used[:size, :, None])[:, 0]  # [B, 1]
        scores = torch.cat([own, torch.addmm(offsets[size:], h, used[size:].T)], 1)
        log_p: Tensor
        log_p, d = loss_of(scores)
        ctx.save_for_backward(h, used, words, d)
        ctx.rows = len(weight), len(offset)
        return log_p / -size

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        h, used, words, d = ctx.saved_tensors
        size = len(h)
        d = d * (grad_output[0] / size)
        own, others = d[:, :1], d[:, 1:]
        grad_h = torch.addmm(own * used[:size], others, used[size:])
        rows, offsets = torch.empty_like(used), d.new_empty(len(words))
        torch.mul(own, h, out=rows[:size])
        torch.mm(others.T, h, out=rows[size:])
        offsets[:size] = own[:, 0]
        torch.sum(others, 0, out=offsets[size:])
        return grad_h, *add_rows(words, *zip(ctx.rows, (rows, offsets), strict=True)), None, None, None
