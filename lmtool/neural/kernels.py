"""Compiled loops over rows of matrices, for CPUs: what tensor operations serve badly. Each lets go of Python's lock.

Legend of shapes: B examples, H numbers each, R rows of a matrix `[R, H]`, P pairs (example, row), of which those of
example b are starts[b] to before starts[b + 1], U different rows among them. Whoever calls cuts the work: first and
last + 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, overload

Array = npt.NDArray[Any]
# Sums may be taken in any order, which lets them run in lanes; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
DIGIT = 11  # bits that one pass of sorting goes by


@njit(cache=True, nogil=True)
def sort_rows(rows: Array, order: Array) -> tuple[Array, Array]:
    """Group equal rows: the different ones ascending `[U]`, and where each begins in `order` `[U + 1]`.

    order `[P]` is filled with the places of rows `[P]`, those of the same row together and in their order (radix sort).
    """
    size = len(rows)
    keys, other_keys = rows.astype(np.int64), np.empty(size, dtype=np.int64)
    places, other_places = np.arange(size).astype(np.int32), np.empty(size, dtype=np.int32)
    largest = 0
    for key in keys:
        largest = max(largest, key)
    shift = 0
    while largest >> shift > 0 or shift == 0:
        counts = np.zeros((1 << DIGIT) + 1, dtype=np.int64)
        for key in keys:
            counts[((key >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
        for digit in range(1 << DIGIT):
            counts[digit + 1] += counts[digit]
        for k in range(size):
            digit = (keys[k] >> shift) & ((1 << DIGIT) - 1)
            other_keys[counts[digit]] = keys[k]
            other_places[counts[digit]] = places[k]
            counts[digit] += 1
        keys, other_keys = other_keys, keys
        places, other_places = other_places, places
        shift += DIGIT
    unique, starts = np.empty(size, dtype=np.int64), np.empty(size + 1, dtype=np.int64)
    found = 0
    for k in range(size):
        order[k] = places[k]
        if k == 0 or keys[k] != keys[k - 1]:
            unique[found] = keys[k]
            starts[found] = k
            found += 1
    starts[found] = size
    return unique[:found].copy(), starts[: found + 1].copy()


@njit(cache=True, nogil=True)
def ascending(rows: Array) -> bool:
    """Whether each row is above the one before it."""
    wrong = 0
    for k in range(1, len(rows)):
        wrong += rows[k] <= rows[k - 1]
    return wrong == 0


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
            total = h[b, 0] * weight[row, 0]
            for j in range(1, width):
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
        for p in range(starts[b], starts[b + 1]):
            row, g = np.uint32(rows[p]), grad[p]
            for j in range(width):
                grad_h[b, j] += g * weight[row, j]


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
        total = grad_bias[u]
        total = 0
        for j in range(width):
            grad_weight[u, j] = 0
        for k in range(starts[u], starts[u + 1]):
            p = np.uint32(order[k])
            b, g = np.uint32(owner[p]), grad[p]
            total += g
            for j in range(width):
                grad_weight[u, j] += g * h[b, j]
        grad_bias[u] = total


@njit(cache=True, nogil=True)
def expand_pairs(starts: Array, owner: Array) -> None:
    """owner[p] = b for the pairs p of each example b."""
    for b in range(len(starts) - 1):
        for p in range(starts[b], starts[b + 1]):
            owner[p] = b


@njit(cache=True, nogil=True)
def path_sizes(leaves: Array, offsets: Array, starts: Array) -> None:
    """starts `[B + 1]`: where the code of each of the leaves `[B]` will begin."""
    starts[0] = 0
    for b in range(len(leaves)):
        starts[b + 1] = starts[b] + offsets[leaves[b] + 1] - offsets[leaves[b]]


@njit(cache=True, nogil=True)
def copy_paths(
    leaves: Array,
    offsets: Array,
    nodes: Array,
    bits: Array,
    starts: Array,
    rows: Array,
    signs: Array,
    owner: Array,
) -> None:
    """The nodes, signs (+1 for bit 1, else -1) and owners `[P]` of the codes of leaves `[B]`, one after the other."""
    for b in range(len(leaves)):
        source = offsets[leaves[b]] - starts[b]
        for p in range(starts[b], starts[b + 1]):
            rows[p] = nodes[source + p]
            signs[p] = 2 * np.int32(bits[source + p]) - 1
            owner[p] = b


@njit(cache=True, nogil=True)
def add_down(log_yes: Array, scores: Array, children: Array, log_leaf: Array, first: int, last: int) -> None:
    """The log-probability of each leaf: `[B, L]` float64 from log sigmoid(s) and s `[B, N]` of the inner nodes.

    log sigmoid(-s) = log sigmoid(s) - s. Nodes stand before their children, so that one pass over them is enough.
    """
    nodes = len(children)
    log_node = np.zeros(nodes)
    for b in range(first, last):
        for node in range(nodes):
            reached = log_node[node] if node else 0.0
            yes = np.float64(log_yes[b, node])
            no = yes - np.float64(scores[b, node])
            for side in range(2):
                value = reached + (yes if side else no)
                child = children[node, side]
                if child >= 0:
                    log_node[child] = value
                else:
                    log_leaf[b, -1 - child] = value


@intrinsic
def _as_float32(typing: Any, bits: Any) -> tuple[Signature, Any]:
    """The float32 with these bits."""

    def build(context: Any, builder: Any, signature: Signature, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), build


def tanh(x: float) -> float:
    """tanh; of float32 without a branch or a call, so that loops over it run in lanes; error below 2e-7."""
    return math.tanh(x)


@overload(tanh, jit_options={"error_model": "numpy"})
def _tanh(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.tanh(x)

    def single(x: Any) -> Any:
        # tanh |x| = (1 - e) / (1 + e) with e = exp(-2 |x|) = 2^k exp(r), |r| <= log(2) / 2, exp(r) by its series.
        away = np.float32(-2.0) * abs(x)
        away = np.float32(-40.0) if away < np.float32(-40.0) else away  # NaN goes on
        k = np.int32(away * np.float32(1.4426950408889634) - np.float32(0.5))
        whole = np.float32(k)
        r = away - whole * np.float32(0.693359375) + whole * np.float32(2.12194440054690583e-4)
        series = np.float32(1 / 720)
        series = series * r + np.float32(1 / 120)
        series = series * r + np.float32(1 / 24)
        series = series * r + np.float32(1 / 6)
        series = series * r + np.float32(0.5)
        series = series * r + np.float32(1.0)
        series = series * r + np.float32(1.0)
        e = series * _as_float32((k + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]
        t = (np.float32(1.0) - e) / (np.float32(1.0) + e)
        return t if x >= np.float32(0.0) else -t

    return single if x == types.float32 else double


@njit(cache=True, nogil=True, fastmath=FAST)
def node_scores(
    p: Array, q: Array, beta: Array, alpha: Array, starts: Array, rows: Array, scores: Array, first: int, last: int
) -> None:
    """scores[k] = alpha[u] + beta . tanh(p[b] + q[u]) for the pairs k = (b, u = rows[k]); p `[B, H]`, q `[U, H]`."""
    width = len(beta)
    for b in range(first, last):
        for k in range(starts[b], starts[b + 1]):
            u = np.uint32(rows[k])
            total = beta[0] * tanh(p[b, 0] + q[u, 0])
            for j in range(1, width):
                total += beta[j] * tanh(p[b, j] + q[u, j])
            scores[k] = total + alpha[u]


@njit(cache=True, nogil=True, fastmath=FAST)
def node_scores_grad(
    grad: Array,
    p: Array,
    q: Array,
    beta: Array,
    starts: Array,
    rows: Array,
    grad_p: Array,
    grad_q: Array,
    grad_beta: Array,
    grad_alpha: Array,
    first: int,
    last: int,
) -> None:
    """The gradients of node_scores; grad_p[b] is written, to grad_q `[U, H]`, grad_beta and grad_alpha is added."""
    width = len(beta)
    for b in range(first, last):
        for j in range(width):
            grad_p[b, j] = 0
        for k in range(starts[b], starts[b + 1]):
            u, g = np.uint32(rows[k]), grad[k]
            grad_alpha[u] += g
            for j in range(width):
                t = tanh(p[b, j] + q[u, j])
                inner = g * beta[j] * (1 - t * t)
                grad_p[b, j] += inner
                grad_q[u, j] += inner
                grad_beta[j] += g * t


@njit(cache=True, nogil=True, fastmath=FAST)
def all_node_scores(p: Array, q: Array, beta: Array, alpha: Array, scores: Array, first: int, last: int) -> None:
    """scores[b, n] = alpha[n] + beta . tanh(p[b] + q[n]) for every node n."""
    width = len(beta)
    for b in range(first, last):
        for n in range(len(alpha)):
            total = beta[0] * tanh(p[b, 0] + q[n, 0])
            for j in range(1, width):
                total += beta[j] * tanh(p[b, j] + q[n, j])
            scores[b, n] = total + alpha[n]
