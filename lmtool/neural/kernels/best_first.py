"""The likeliest leaves of a tree by best-first descent, compiled: no leaf below a node is likelier than the node.

Legend of shapes: B examples, D hidden, N inner nodes.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from numba import njit

from lmtool.neural.kernels.loops import FAST, Array


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
    """The k likeliest leaves `[B, k]` after hidden `[B, D]`, likeliest first, and their log p; k at most all leaves.

    vectors `[N, D]` and bias `[N]` score the way to the second of a node's children `[N, 2]`, leaf l as -1 - l.
    """
    for b in range(first, last):
        waiting = [(0.0, np.int64(0))]  # -log p of a node or leaf and itself: a heap, the likeliest in front
        found = 0
        while found < leaves.shape[1]:
            cost, node = heapq.heappop(waiting)
            if node < 0:
                leaves[b, found] = -1 - node
                log_p[b, found] = -cost
                found += 1
                continue
            score = np.float64(_dot(h[b], vectors[node]) + bias[node])
            less = math.log1p(math.exp(-abs(score)))  # -log sigmoid(|score|)
            heapq.heappush(waiting, (cost + less + max(score, 0.0), np.int64(children[node, 0])))
            heapq.heappush(waiting, (cost + less + max(-score, 0.0), np.int64(children[node, 1])))
