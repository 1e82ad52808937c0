"""Compiled loops over rows of matrices, for CPUs: what tensor operations serve badly. Each releases Python's lock.

Legend of shapes: B examples, H dimension, R rows of a matrix `[R, H]`, P pairs (example, row), of which those of
example b are starts[b] to before starts[b + 1], U different rows among them, O words that can be predicted.
The caller cuts the work: a call does the part from first to before last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lmtool.neural.kernels.fast_math import exp_below, log1p_below

Array = npt.NDArray[Any]
# Sums may be taken in any order, so that they are vectorised; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
WIDTH = 64  # numbers worked on side by side, more than any processor's vector registers hold
FEWEST_BITS, MOST_BITS = 8, 15  # of the digits that one pass of the radix sort goes by


@njit(cache=True, nogil=True)
def sort_rows(rows: Array, order: Array) -> tuple[Array, Array]:
    """Group equal rows: the different ones ascending `[U]`, and where each begins in `order` `[U + 1]`.

    order `[P]` is filled with the places of rows `[P]`, those of the same row together and in their order (radix sort).
    """
    size = len(rows)
    keys: Array = np.empty(size, dtype=np.int64)
    other_keys: Array = np.empty(size, dtype=np.int64)
    places, other_places = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    for k in range(size):  # np.arange would be a second to compile
        keys[k], places[k] = rows[k], k
    largest, bits, digit_bits = np.int64(0), 1, FEWEST_BITS
    for key in keys:
        largest = max(largest, key)
    while largest >> bits:
        bits += 1
    # The table of counts may be as long as the list of rows: the fewer passes the better.
    while digit_bits < MOST_BITS and size >> (digit_bits + 1):
        digit_bits += 1
    passes = (bits + digit_bits - 1) // digit_bits
    digit_bits = (bits + passes - 1) // passes
    mask = (1 << digit_bits) - 1
    for number in range(passes):
        shift = number * digit_bits
        counts = np.zeros(mask + 2, dtype=np.int64)
        for key in keys:
            counts[((key >> shift) & mask) + 1] += 1
        for digit in range(mask + 1):
            counts[digit + 1] += counts[digit]
        for k in range(size):
            digit = (keys[k] >> shift) & mask
            other_keys[counts[digit]] = keys[k]
            other_places[counts[digit]] = places[k]
            counts[digit] += 1
        keys, other_keys = other_keys, keys
        places, other_places = other_places, places
    unique, starts = np.empty(size, dtype=np.int64), np.empty(size + 1, dtype=np.int64)
    groups = 0
    for k in range(size):
        order[k] = places[k]
        if k == 0 or keys[k] != keys[k - 1]:
            unique[groups] = keys[k]
            starts[groups] = k
            groups += 1
    starts[groups] = size
    return unique[:groups].copy(), starts[: groups + 1].copy()


@njit(cache=True, nogil=True)
def ascending(rows: Array) -> bool:
    """Whether each row is above the one before it."""
    wrong = 0
    for k in range(1, len(rows)):
        wrong += rows[k] <= rows[k - 1]
    return wrong == 0


@njit(nogil=True)
def copy_row(source: Array, target: Array) -> None:
    """target[j] = source[j] for the places of `target`.

    With a slice in its place numba compiles what it would say of unequal lengths: seconds in each function.
    """
    for j in range(len(target)):
        target[j] = source[j]


@njit(cache=True, nogil=True)
def sum_rows(values: Array, order: Array, starts: Array, sums: Array, first: int, last: int) -> None:
    """sums[u] = sum of values[order[k]] over the places k of group u: `[U, H]` from `[P, H]`."""
    width = values.shape[1]
    for u in range(first, last):
        for j in range(width):
            sums[u, j] = 0
        for k in range(starts[u], starts[u + 1]):
            place = np.uint32(order[k])
            for j in range(width):
                sums[u, j] += values[place, j]


@njit(cache=True, nogil=True, fastmath=FAST)
def dot_rows(
    h: Array, weight: Array, bias: Array, starts: Array, rows: Array, scores: Array, first: int, last: int
) -> None:
    """scores[p] = h[b] . weight[rows[p]] + bias[rows[p]] for the pairs p of the examples b."""
    width = h.shape[1]
    for b in range(first, last):
        for p in range(starts[b], starts[b + 1]):
            row = np.uint32(rows[p])
            total = h.dtype.type(0)  # a literal 0 would make it float64
            for j in range(width):
                total += h[b, j] * weight[row, j]
            scores[p] = total + bias[row]


@njit(cache=True, nogil=True, fastmath=FAST)
def dot_rows_grad_h(
    grad: Array, weight: Array, starts: Array, rows: Array, grad_h: Array, first: int, last: int
) -> None:
    """grad_h[b] = sum of grad[p] weight[rows[p]] over the pairs p of example b."""
    width = weight.shape[1]
    for b in range(first, last):
        for j in range(width):
            grad_h[b, j] = 0
        p, end = starts[b], starts[b + 1]
        while p + 4 <= end:  # four at a time: the sums are read and written once for them
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
def dot_rows_grad_weight(
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
    """grad_weight[u] = sum of grad[p] h[owner[p]] over the pairs p of group u, grad_bias[u] that of grad[p]."""
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def logistic(scores: Array, signs: Array, grad: Array, first: int, last: int) -> Any:
    """Sum of -log sigmoid(sign s) over scores `[P]`; grad[p] becomes its derivative by s, -sign sigmoid(-sign s).

    signs: `[P]`, int32, or `[1]` for one sign for all.
    """
    zero, one = scores.dtype.type(0), scores.dtype.type(1)  # literals would make it all float64
    total = zero
    many = len(signs) > 1
    # The sum is taken in a loop that touches one array alone. One that reads from an array and writes to another is
    # vectorised or not by where they happen to lie in memory, and a vectorised sum has other last bits.
    for block in range(first, last, 4096):  # partial sums keep float32 exact enough
        end = min(block + 4096, last)
        here, work = scores[block:end], grad[block:end]
        if many:
            here_signs = signs[block:end]
            for k in range(len(work)):
                work[k] = scores.dtype.type(here_signs[k]) * here[k]
        else:
            sign = scores.dtype.type(signs[0])
            for k in range(len(work)):
                work[k] = sign * here[k]
        part = zero
        for k in range(len(work)):
            x = work[k]
            e = exp_below(-abs(x))
            part += log1p_below(e) + (zero if x >= zero else -x)
            work[k] = -(e if x >= zero else one) / (one + e)  # -sigmoid(-x)
        if many:
            here_signs = signs[block:end]
            for k in range(len(work)):
                work[k] *= scores.dtype.type(here_signs[k])
        else:
            sign = scores.dtype.type(signs[0])
            for k in range(len(work)):
                work[k] *= sign
        total += part
    return total


# Where nothing compares with NaN, a maximum can be vectorised.
@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _add_and_largest(row: Array, bias: Array, part: Array) -> Any:
    """row += bias; its maximum. part: an uninitialised array of WIDTH."""
    size, whole = len(row), len(row) // WIDTH * WIDTH
    for k in range(WIDTH):
        part[k] = row[k % size] + bias[k % size]
    # Many maxima side by side are vectorised, a single one is not.
    for j in range(0, whole, WIDTH):
        for k in range(WIDTH):
            value = row[j + k] + bias[j + k]
            row[j + k] = value
            part[k] = value if value > part[k] else part[k]
    for j in range(whole, size):
        row[j] += bias[j]
        part[0] = max(part[0], row[j])
    largest = part[0]
    for k in range(WIDTH):
        largest = max(largest, part[k])
    return largest


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def exp_rows(scores: Array, bias: Array, targets: Array, loss: Array, share: Array, first: int, last: int) -> None:
    """scores[i] `[O]` becomes exp(scores[i] + bias - maximum); share[i] is 1 over its sum, loss[i] -log p(target)."""
    part = np.empty(WIDTH, dtype=scores.dtype)
    for i in range(first, last):
        row = scores[i]
        largest = _add_and_largest(row, bias, part)
        target = row[targets[i]]
        total = scores.dtype.type(0)
        for j in range(len(row)):
            e = exp_below(row[j] - largest)
            row[j] = e
            total += e
        share[i] = 1 / total
        loss[i] = math.log(total) - (target - largest)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def exp_columns(scores: Array, bias: Array, targets: Array, loss: Array, share: Array, largest: Array) -> None:
    """exp_rows for scores `[O, b]`, one column per example, vectorised over the examples.

    largest: an uninitialised array `[b]`.
    """
    outputs, examples = scores.shape
    for i in range(examples):
        largest[i] = scores[0, i] + bias[0]
        share[i] = 0
    for j in range(outputs):
        for i in range(examples):
            value = scores[j, i] + bias[j]
            scores[j, i] = value
            largest[i] = value if value > largest[i] else largest[i]
    for i in range(examples):
        loss[i] = largest[i] - scores[targets[i], i]
    for j in range(outputs):
        for i in range(examples):
            e = exp_below(scores[j, i] - largest[i])
            scores[j, i] = e
            share[i] += e
    for i in range(examples):
        loss[i] += math.log(share[i])
        share[i] = 1 / share[i]


@njit(cache=True, nogil=True, error_model="numpy")
def softmax_gradient(exponentials: Array, targets: Array, share: Array) -> None:
    """What exp_columns made, `[O, b]`, becomes the gradient of the scores: (p - onehot) / b."""
    outputs, examples = exponentials.shape
    each = exponentials.dtype.type(1 / examples)
    for j in range(outputs):
        for i in range(examples):
            exponentials[j, i] *= share[i] * each
    for i in range(examples):
        exponentials[targets[i], i] -= each
