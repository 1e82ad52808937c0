"""Compiled loops over binary trees, for CPUs: paths, distributions, the scores of nodes, the most likely leaves.

Legend of shapes: B examples, D dimension of the hidden, N inner nodes, L leaves, P pairs (example, node), of which
those of example b are starts[b] to before starts[b + 1], U different nodes among them, H hidden units of the nodes.
The caller cuts the work: a call does the part from first to before last.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from numba import njit

from lmtool.neural.kernels.fast_math import tanh
from lmtool.neural.kernels.loops import FAST, Array


@njit(cache=True, nogil=True)
def path_sizes(leaves: Array, offsets: Array, starts: Array) -> None:
    """Fill starts `[B + 1]` with where the code of each of the leaves `[B]` will begin."""
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
    """Fill rows, signs and owner `[P]` with the nodes on the paths to leaves `[B]`, one path after the other, the signs
    of their decisions (+1 for bit 1, else -1) and the b of each.
    """
    for b in range(len(leaves)):
        source = offsets[leaves[b]] - starts[b]
        for p in range(starts[b], starts[b + 1]):
            rows[p] = nodes[source + p]
            signs[p] = 2 * np.int32(bits[source + p]) - 1
            owner[p] = b


@njit(cache=True, nogil=True)
def add_down(log_second: Array, scores: Array, children: Array, log_leaf: Array, first: int, last: int) -> None:
    """Fill log_leaf `[B, L]`, float64, with log p of each leaf, from s and log_second = log sigmoid(s), `[B, N]`.

    log sigmoid(-s) = log sigmoid(s) - s. Nodes stand before their children, so that one pass over them is enough.
    """
    nodes = len(children)
    log_node = np.zeros(nodes)
    for b in range(first, last):
        for node in range(nodes):
            reached = log_node[node] if node else 0.0
            second = np.float64(log_second[b, node])
            first_child = second - np.float64(scores[b, node])
            for side in range(2):
                value = reached + (second if side else first_child)
                child = children[node, side]
                if child >= 0:
                    log_node[child] = value
                else:
                    log_leaf[b, -1 - child] = value


@njit(cache=True, nogil=True, fastmath=FAST)
def node_scores(
    p: Array, q: Array, beta: Array, alpha: Array, starts: Array, rows: Array, scores: Array, first: int, last: int
) -> None:
    """scores[k] = alpha[u] + beta . tanh(p[b] + q[u]) for the pairs k = (b, u = rows[k]); p `[B, H]`, q `[U, H]`."""
    width = len(beta)
    for b in range(first, last):
        for k in range(starts[b], starts[b + 1]):
            u = np.uint32(rows[k])
            total = beta.dtype.type(0)
            for j in range(width):
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
    """The gradients of node_scores: grad_p[b] is written; grad_q `[U, H]`, grad_beta and grad_alpha are added to."""
    width, one = len(beta), beta.dtype.type(1)  # a literal 1 would make it float64
    for b in range(first, last):
        for j in range(width):
            grad_p[b, j] = 0
        for k in range(starts[b], starts[b + 1]):
            u, g = np.uint32(rows[k]), grad[k]
            grad_alpha[u] += g
            for j in range(width):
                t = tanh(p[b, j] + q[u, j])
                inner = g * beta[j] * (one - t * t)
                grad_p[b, j] += inner
                grad_q[u, j] += inner
                grad_beta[j] += g * t


@njit(cache=True, nogil=True, fastmath=FAST)
def all_node_scores(p: Array, q: Array, beta: Array, alpha: Array, scores: Array, first: int, last: int) -> None:
    """scores[b, n] = alpha[n] + beta . tanh(p[b] + q[n]) for every node n."""
    width = len(beta)
    for b in range(first, last):
        for n in range(len(alpha)):
            total = beta.dtype.type(0)
            for j in range(width):
                total += beta[j] * tanh(p[b, j] + q[n, j])
            scores[b, n] = total + alpha[n]


@njit(nogil=True, fastmath=FAST)
def _dot(a: Array, b: Array) -> Any:
    total = a.dtype.type(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit(cache=True, nogil=True)
def best_first(
    h: Array, vectors: Array, bias: Array, children: Array, leaves: Array, log_p: Array, first: int, last: int
) -> None:
    """Fill leaves `[B, k]` with the most likely ones after hidden `[B, D]`, the most likely first, and log_p `[B, k]`,
    float64; k is at most the number of leaves.

    vectors `[N, D]` and bias `[N]` score the decision for the second of a node's children `[N, 2]`, leaf l as -1 - l.
    """
    for b in range(first, last):
        queue = [(0.0, np.int64(0))]  # -log p of a node or leaf and itself: a heap, the most likely in front
        count = 0
        while count < leaves.shape[1]:
            cost, node = heapq.heappop(queue)
            if node < 0:
                leaves[b, count] = -1 - node
                log_p[b, count] = -cost
                count += 1
                continue
            score = np.float64(_dot(h[b], vectors[node]) + bias[node])
            less = math.log1p(math.exp(-abs(score)))  # -log sigmoid(|score|)
            heapq.heappush(queue, (cost + less + max(score, 0.0), np.int64(children[node, 0])))
            heapq.heappush(queue, (cost + less + max(-score, 0.0), np.int64(children[node, 1])))
