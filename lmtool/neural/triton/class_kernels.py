"""Triton kernels of classes: each example has a list of rows, the words of its target's class, and a softmax over them.

Legend of shapes: B examples, D dimension of the hidden, R rows of a matrix `[R, D]`.

As in list_kernels one program does one example; examples of one class read the same rows, from the L2 cache. The scores
are computed again for the gradients: to keep them would take as many numbers per example as its class has words.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lmtool.neural.triton.list_kernels import list_of


@triton.jit
def rows_of(hidden_row, weight, bias, rows, start, p, length, d, D: tl.constexpr):
    """Of the places p of a list: whether there are any, their rows, the rows' numbers and scores."""
    on = p < length
    row = tl.load(rows + start + p, mask=on, other=0).to(tl.int64)
    numbers = on[:, None] & (d < D)[None, :]
    w = tl.load(weight + row[:, None] * D + d[None, :], mask=numbers, other=0.0).to(tl.float32)
    score = tl.sum(w * hidden_row[None, :], axis=1) + tl.load(bias + row, mask=on, other=0.0).to(tl.float32)
    return on, row, w, score


@triton.jit
def losses(
    hidden,
    weight,
    bias,
    classes,
    starts,
    members,
    targets,
    totals,
    chosen,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """totals `[B]`: log-sum-exp of s = weight[r] . h + bias[r] over the rows of classes `[B]`; chosen `[B]`: s of
    targets `[B]`, places in the list of the class.
    """
    example = tl.program_id(0).to(tl.int64)
    start, length = list_of(classes, starts, example, 0)
    target = tl.load(targets + example)
    d = tl.arange(0, BLOCK_D)
    x = tl.load(hidden + example * D + d, mask=d < D, other=0.0).to(tl.float32)
    largest = tl.full([BLOCK_P], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_P], tl.float32)
    score_of_target = tl.zeros([BLOCK_P], tl.float32)
    for first in range(0, length, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        on, _, _, score = rows_of(x, weight, bias, members, start, p, length, d, D)
        score_of_target += tl.where(on & (p == target), score, 0.0)
        larger = tl.where(on, tl.maximum(largest, score), largest)  # of each of the BLOCK_P parts of a list
        level = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(largest - level) + tl.where(on, tl.exp(tl.where(on, score - level, 0.0)), 0.0)
        largest = larger
    top = tl.max(largest, axis=0)  # a class has one word or more
    scaled = tl.where(total == 0, 0.0, total * tl.exp(tl.where(total == 0, 0.0, largest - top)))
    tl.store(totals + example, top + tl.log(tl.sum(scaled, axis=0)))
    tl.store(chosen + example, tl.sum(score_of_target, axis=0))


@triton.jit
def gradients(
    hidden,
    weight,
    bias,
    classes,
    starts,
    members,
    targets,
    totals,
    scales,
    grad_hidden,
    grad_weight,
    grad_bias,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """The gradients of scales `[B]` times totals less chosen: sets that of hidden `[B, D]`.

    grad_weight `[R, D]` and grad_bias `[R]`, float32, are added to without order.
    """
    example = tl.program_id(0).to(tl.int64)
    start, length = list_of(classes, starts, example, 0)
    target, level, scale = tl.load(targets + example), tl.load(totals + example), tl.load(scales + example)
    d = tl.arange(0, BLOCK_D)
    x = tl.load(hidden + example * D + d, mask=d < D, other=0.0).to(tl.float32)
    grad = tl.zeros([BLOCK_D], tl.float32)
    for first in range(0, length, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        on, row, w, score = rows_of(x, weight, bias, members, start, p, length, d, D)
        delta = tl.exp(tl.where(on, score - level, 0.0)) - tl.where(p == target, 1.0, 0.0)
        delta = tl.where(on, delta * scale, 0.0)
        grad += tl.sum(delta[:, None] * w, axis=0)
        numbers = on[:, None] & (d < D)[None, :]
        at = row[:, None] * D + d[None, :]
        tl.atomic_add(grad_weight + at, delta[:, None] * x[None, :], mask=numbers, sem="relaxed")
        tl.atomic_add(grad_bias + row, delta, mask=on, sem="relaxed")
    tl.store(grad_hidden + example * D + d, grad, mask=d < D)
