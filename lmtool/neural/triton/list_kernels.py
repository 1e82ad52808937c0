"""Triton kernels of lists: each example has a list of rows, and each of its rows a logistic loss.

Legend of shapes: B examples, D dimension of the hidden, R rows of a matrix `[R, D]`, M most rows of a list.

One program does one example, whose hidden it holds; BLOCK_P x BLOCK_D numbers of rows are in registers at once. With
B = 1,024 that is one wave on 132 multiprocessors, 8 programs of 4 warps on each. None of it can use matrix units, as no
two examples have the same rows.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def list_of(words, offsets, example, most):
    """Where the list of an example begins, and its length: words[example]'s by offsets, or each has `most`."""
    if offsets is not None:
        word = tl.load(words + example).to(tl.int64)
        start = tl.load(offsets + word)
        length = (tl.load(offsets + word + 1) - start).to(tl.int32)
    else:
        start = example * most
        length = most
    return start, length


@triton.jit
def losses(
    hidden,
    weight,
    bias,
    shift,
    terms,
    words,
    offsets,
    rows,
    bits,
    sums,
    deltas,
    places,
    most,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """sums `[B]`: of -log sigmoid(sign s) over the list of an example, s = weight[r] . h + bias[r] - shift[r] + term.

    deltas `[B, M]`: the derivative by each s; places `[B, M]`: its row, unless None. sign: + where bits are 1; without
    bits + for the first of a list and - for the others.
    """
    example = tl.program_id(0).to(tl.int64)
    start, length = list_of(words, offsets, example, most)
    d = tl.arange(0, BLOCK_D)
    x = tl.load(hidden + example * D + d, mask=d < D, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK_P], tl.float32)
    for first in range(0, length, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        on = p < length
        row = tl.load(rows + start + p, mask=on, other=0).to(tl.int64)
        numbers = on[:, None] & (d < D)[None, :]
        w = tl.load(weight + row[:, None] * D + d[None, :], mask=numbers, other=0.0).to(tl.float32)
        score = tl.sum(w * x[None, :], axis=1) + tl.load(bias + row, mask=on, other=0.0).to(tl.float32)
        if shift is not None:
            score -= tl.load(shift + row, mask=on, other=0.0).to(tl.float32)
        if terms is not None:
            score += tl.load(terms + example).to(tl.float32)
        if bits is not None:
            sign = 2.0 * tl.load(bits + start + p, mask=on, other=0).to(tl.float32) - 1.0
        else:
            sign = tl.where(p == 0, 1.0, -1.0)
        z = sign * score
        small = tl.exp(-tl.abs(z))  # at most 1: neither form overflows
        loss = tl.where(z < 0, -z, 0.0) + tl.log(1.0 + small)
        total += tl.where(on, loss, 0.0)
        delta = -sign * tl.where(z > 0, small, 1.0) / (1.0 + small)
        tl.store(deltas + example * most + p, delta, mask=on)
        if places is not None:
            tl.store(places + example * most + p, row.to(tl.int32), mask=on)
    tl.store(sums + example, tl.sum(total, axis=0))


@triton.jit
def gradients(
    hidden,
    weight,
    words,
    offsets,
    rows,
    deltas,
    scales,
    grad_hidden,
    grad_terms,
    grad_weight,
    grad_bias,
    most,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """The gradients of scales `[B]` times `losses`: sets those of hidden `[B, D]` and, unless None, of terms `[B]`.

    grad_weight `[R, D]` and grad_bias `[R]`, float32, are added to without order, unless None.
    """
    example = tl.program_id(0).to(tl.int64)
    start, length = list_of(words, offsets, example, most)
    d = tl.arange(0, BLOCK_D)
    x = tl.load(hidden + example * D + d, mask=d < D, other=0.0).to(tl.float32)
    scale = tl.load(scales + example)
    grad = tl.zeros([BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_P], tl.float32)
    for first in range(0, length, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        on = p < length
        row = tl.load(rows + start + p, mask=on, other=0).to(tl.int64)
        delta = scale * tl.load(deltas + example * most + p, mask=on, other=0.0)
        delta = tl.where(on, delta, 0.0)  # 0 times a scale of infinity
        numbers = on[:, None] & (d < D)[None, :]
        at = row[:, None] * D + d[None, :]
        w = tl.load(weight + at, mask=numbers, other=0.0).to(tl.float32)
        grad += tl.sum(delta[:, None] * w, axis=0)
        total += delta
        if grad_weight is not None:
            tl.atomic_add(grad_weight + at, delta[:, None] * x[None, :], mask=numbers, sem="relaxed")
            tl.atomic_add(grad_bias + row, delta, mask=on, sem="relaxed")
    tl.store(grad_hidden + example * D + d, grad, mask=d < D)
    if grad_terms is not None:
        tl.store(grad_terms + example, tl.sum(total, axis=0))


@triton.jit
def segment_sums(
    hidden,
    deltas,
    scales,
    order,
    starts,
    grad_weight,
    grad_bias,
    most,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """The same gradients of weight and bias, row by row in the order of the examples, so that bits repeat.

    order: places of `[B, M]` by their rows; those of segment u are order[starts[u]] to before order[starts[u + 1]].
    Sets grad_weight `[U, D]` and grad_bias `[U]`. The root of a tree is on every path: its program is the last to end,
    after B / BLOCK_P turns.
    """
    segment = tl.program_id(0).to(tl.int64)
    start = tl.load(starts + segment)
    end = tl.load(starts + segment + 1)
    d = tl.arange(0, BLOCK_D)
    grad = tl.zeros([BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_P], tl.float32)
    for first in range(start, end, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        on = p < end
        place = tl.load(order + p, mask=on, other=0)
        example = place // most
        delta = tl.load(deltas + place, mask=on, other=0.0) * tl.load(scales + example, mask=on, other=0.0)
        numbers = on[:, None] & (d < D)[None, :]
        x = tl.load(hidden + example[:, None] * D + d[None, :], mask=numbers, other=0.0).to(tl.float32)
        grad += tl.sum(delta[:, None] * x, axis=0)
        total += delta
    tl.store(grad_weight + segment * D + d, grad, mask=d < D)
    tl.store(grad_bias + segment, tl.sum(total, axis=0))
