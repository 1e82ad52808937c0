"""Triton kernels of columns: all examples of a batch share the rows of one matrix, and the scores are a product.

Legend of shapes: B examples, K columns (rows of the matrix `[K, D]`), D dimension, S parts that the work is cut into.

The scores exist a tile BLOCK_B x BLOCK_K at a time, and are computed again for the gradients, as in FlashAttention and
Cut Cross-Entropy (Wijmans et al. 2025); no kernel adds atomically, so that bits repeat. A kernel goes along one side of
the scores and sums over the other; where one side has fewer tiles than there are multiprocessors, the other is cut into
S parts, whose sums are then added up in their order.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def narrowed(numbers, NARROW: tl.constexpr, INTERPRETED: tl.constexpr):
    """What a product takes: bf16 where NARROW, else the float32 that it is."""
    if NARROW:
        numbers = numbers.to(tl.bfloat16)
        if INTERPRETED:  # the interpreter multiplies bf16 as if its bits were integers
            numbers = numbers.to(tl.float32)
    else:
        numbers = numbers.to(tl.float32)
    return numbers


@triton.jit
def scores_of(
    hidden,
    weight,
    bias,
    terms,
    b,
    k,
    size,
    columns,
    D: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP_D: tl.constexpr,
    NARROW: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """h[b] . weight[k] + bias[k] + terms[b], `[BLOCK_B, BLOCK_K]`, float32; bias and terms unless None."""
    scores = tl.zeros([BLOCK_B, BLOCK_K], tl.float32)
    for first in range(0, D, STEP_D):
        d = first + tl.arange(0, STEP_D)
        x_on = (b < size)[:, None] & (d < D)[None, :]
        w_on = (k < columns)[None, :] & (d < D)[:, None]
        x = tl.load(hidden + b.to(tl.int64)[:, None] * D + d[None, :], mask=x_on, other=0.0)
        w = tl.load(weight + k.to(tl.int64)[None, :] * D + d[:, None], mask=w_on, other=0.0)
        x, w = narrowed(x, NARROW, INTERPRETED), narrowed(w, NARROW, INTERPRETED)
        scores = tl.dot(x, w, scores, input_precision=PRECISION)
    if bias is not None:
        scores += tl.load(bias + k, mask=k < columns, other=0.0).to(tl.float32)[None, :]
    if terms is not None:
        scores += tl.load(terms + b, mask=b < size, other=0.0).to(tl.float32)[:, None]
    return scores


@triton.jit
def sums(
    hidden,
    weight,
    bias,
    terms,
    targets,
    totals,
    chosen,
    size,
    columns,
    span,
    D: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP_D: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    NARROW: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """totals `[S, B]`: of each part of the columns the log-sum-exp of the scores, or the sum of log(1 + e^s).

    chosen `[S, B]`, unless targets `[B]` is None: the score of the target's column, in the part that has it.
    """
    b = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    part = tl.program_id(1)
    largest = tl.full([BLOCK_B], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_B], tl.float32)
    score = tl.zeros([BLOCK_B], tl.float32)
    if targets is not None:
        target = tl.load(targets + b, mask=b < size, other=-1)
    for first in range(part * span, min((part + 1) * span, columns), BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        s = scores_of(
            hidden, weight, bias, terms, b, k, size, columns,
            D, BLOCK_B, BLOCK_K, STEP_D, NARROW, PRECISION, INTERPRETED,
        )  # fmt: skip
        on = (b < size)[:, None] & (k < columns)[None, :]
        if targets is not None:
            score += tl.sum(tl.where(k[None, :] == target[:, None], s, 0.0), axis=1)
        if SOFTPLUS:
            s = tl.where(on, s, 0.0)
            terms_of = tl.where(s > 0, s, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(s)))
            total += tl.sum(tl.where(on, terms_of, 0.0), axis=1)
        else:
            s = tl.where(on, s, float("-inf"))
            larger = tl.maximum(largest, tl.max(s, axis=1))
            level = tl.where(larger == float("-inf"), 0.0, larger)  # none counted so far
            total = total * tl.exp(largest - level) + tl.sum(tl.exp(s - level[:, None]), axis=1)
            largest = larger
    if not SOFTPLUS:
        level = tl.where(largest == float("-inf"), 0.0, largest)
        none = total == 0
        total = tl.where(none, float("-inf"), level + tl.log(tl.where(none, 1.0, total)))
    at = part.to(tl.int64) * size + b
    tl.store(totals + at, total, mask=b < size)
    if targets is not None:
        tl.store(chosen + at, score, mask=b < size)


@triton.jit
def deltas_of(
    s,
    on,
    targets,
    totals,
    scales,
    b,
    k,
    size,
    SOFTPLUS: tl.constexpr,
):
    """The derivative by each score of a tile: softmax, or sigmoid, less 1 at the target; times scales `[B]`."""
    s = tl.where(on, s, 0.0)
    if SOFTPLUS:
        small = tl.exp(-tl.abs(s))
        delta = tl.where(s < 0, small, 1.0) / (1.0 + small)
    else:
        total = tl.load(totals + b, mask=b < size, other=0.0)
        # Where nothing counts the level is -inf; what does not count may be large.
        level = tl.where(total == float("-inf"), 0.0, total)[:, None]
        delta = tl.exp(tl.where(on, s - level, 0.0))
    delta = tl.where(on, delta, 0.0)
    if targets is not None:
        target = tl.load(targets + b, mask=b < size, other=-1)
        delta -= tl.where(k[None, :] == target[:, None], 1.0, 0.0)
    scale = tl.load(scales + b, mask=b < size, other=0.0)
    return tl.where(on, delta * scale[:, None], 0.0)


@triton.jit
def hidden_gradients(
    hidden,
    weight,
    bias,
    terms,
    targets,
    totals,
    scales,
    grad_hidden,
    grad_terms,
    size,
    columns,
    span,
    D: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP_D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    NARROW: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """grad_hidden `[S, B, D]` and, unless None, grad_terms `[S, B]`: of each part of the columns, float32."""
    b = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    part = tl.program_id(1)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    grad = tl.zeros([BLOCK_B, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_B], tl.float32)
    for first in range(part * span, min((part + 1) * span, columns), BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        s = scores_of(
            hidden, weight, bias, terms, b, k, size, columns,
            D, BLOCK_B, BLOCK_K, STEP_D, NARROW, PRECISION, INTERPRETED,
        )  # fmt: skip
        on = (b < size)[:, None] & (k < columns)[None, :]
        delta = deltas_of(s, on, targets, totals, scales, b, k, size, SOFTPLUS)
        total += tl.sum(delta, axis=1)
        w_on = (k < columns)[:, None] & (d < D)[None, :]
        w = tl.load(weight + k.to(tl.int64)[:, None] * D + d[None, :], mask=w_on, other=0.0)
        delta, w = narrowed(delta, NARROW, INTERPRETED), narrowed(w, NARROW, INTERPRETED)
        grad = tl.dot(delta, w, grad, input_precision=PRECISION)
    at = part.to(tl.int64) * size + b
    grad_on = (b < size)[:, None] & (d < D)[None, :]
    tl.store(grad_hidden + at[:, None] * D + d[None, :], grad, mask=grad_on)
    if grad_terms is not None:  # from every tile of D the same
        tl.store(grad_terms + at, total, mask=b < size)


@triton.jit
def weight_gradients(
    hidden,
    weight,
    bias,
    terms,
    targets,
    totals,
    scales,
    grad_weight,
    grad_bias,
    size,
    columns,
    span,
    D: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP_D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    NARROW: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """grad_weight `[S, K, D]` and, unless None, grad_bias `[S, K]`: of each part of the examples, float32."""
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    part = tl.program_id(1)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    grad = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_K], tl.float32)
    for first in range(part * span, min((part + 1) * span, size), BLOCK_B):
        b = first + tl.arange(0, BLOCK_B)
        s = scores_of(
            hidden, weight, bias, terms, b, k, size, columns,
            D, BLOCK_B, BLOCK_K, STEP_D, NARROW, PRECISION, INTERPRETED,
        )  # fmt: skip
        on = (b < size)[:, None] & (k < columns)[None, :]
        delta = deltas_of(s, on, targets, totals, scales, b, k, size, SOFTPLUS)
        total += tl.sum(delta, axis=0)
        x_on = (b < size)[:, None] & (d < D)[None, :]
        x = tl.load(hidden + b.to(tl.int64)[:, None] * D + d[None, :], mask=x_on, other=0.0)
        delta, x = narrowed(delta, NARROW, INTERPRETED), narrowed(x, NARROW, INTERPRETED)
        grad = tl.dot(tl.trans(delta), x, grad, input_precision=PRECISION)
    at = part.to(tl.int64) * columns + k
    grad_on = (k < columns)[:, None] & (d < D)[None, :]
    tl.store(grad_weight + at[:, None] * D + d[None, :], grad, mask=grad_on)
    if grad_bias is not None:
        tl.store(grad_bias + at, total, mask=k < columns)
