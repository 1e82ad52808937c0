"""Forms of layers over binary trees, by compiled loops: scores of Morin & Bengio's nodes, distributions, and the most
likely words.

The plain methods, in outputs.hierarchical, store a vector for each pair of example and node; here each is used when it
is computed. tests/neural/test_forms.py compares both.

Legend of shapes: B examples, D dimension of the hidden states, N inner nodes, L leaves, P pairs (example, node), of
which those of example b are starts[b] to before starts[b + 1], U different nodes among them, H hidden units of the
nodes. A call does the part from first to before last of the work, which the caller cuts for its threads.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, cast

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmtool.neural.forms import form
from lmtool.neural.forms.loops import FAST, Groups, as_arrays, over_segments, runs_compiled, tanh
from lmtool.neural.outputs.hierarchical import DotNodes, HierarchicalSoftmax, MorinBengioNodes
from lmtool.neural.rows import Pairs, rows_of
from lmtool.system import parallel
from lmtool.system.arrays import Array

MIN_UNITS = 1 << 12  # examples x hidden units of a node; with fewer, the plain method is as fast


def _serves_leaves(layer: HierarchicalSoftmax, h: Tensor) -> bool:
    return runs_compiled(h) and layer.tree.nodes > 0


def _serves_best(layer: HierarchicalSoftmax, h: Tensor) -> bool:
    """Return whether each word has one code, and nodes are dot products: other nodes are faster all at once."""
    return _serves_leaves(layer, h) and type(layer.nodes) is DotNodes and layer.tree.leaves == layer.tree.words


@form(
    MorinBengioNodes,
    "pair_scores",
    serves=lambda nodes, h: runs_compiled(h) and len(h) * len(nodes.beta) >= MIN_UNITS,
    measured="1.3 to 4.2 times, 0.9 with 32 examples of 20 hidden units (not served); EPYC Zen 5, 2026-11",
)
def morin_bengio_pairs(nodes: MorinBengioNodes, h: Tensor, pairs: Pairs) -> Tensor:
    """Compute s of each pair, `[P]`; terms that depend only on the node are computed once for each different node."""
    groups = Groups(pairs.rows)
    used, rows = torch.from_numpy(groups.unique), torch.from_numpy(groups.places())
    own, alpha = (rows_of(weight, used, sparse=nodes.sparse) for weight in (nodes.nodes, nodes.alpha))
    with_own_rows = Pairs(rows, pairs.starts, pairs.owner)
    scores: Tensor = _PairScores.apply(  # type: ignore[no-untyped-call]
        nodes.hidden(h).to(h.dtype), nodes.node_map(own).to(h.dtype), nodes.beta, alpha, with_own_rows
    )
    return scores


@form(
    MorinBengioNodes,
    "node_scores",
    serves=lambda nodes, h: runs_compiled(h),
    measured="1.6 to 6.5 times; EPYC Zen 5, 2026-11-25",
)
def morin_bengio_nodes(nodes: MorinBengioNodes, h: Tensor) -> Tensor:
    """Compute s of every node, `[B, N]`."""
    p, q = (of_layer.to(h.dtype) for of_layer in (nodes.hidden(h), nodes.node_map(nodes.nodes)))  # from autocast
    scores = h.new_empty(len(h), len(q))
    arrays = as_arrays(p, q, nodes.beta, nodes.alpha, scores)
    parallel.run((_all_node_scores, *arrays, first, last) for first, last in parallel.cut_evenly(len(h)))
    return scores


@form(HierarchicalSoftmax, "log_leaves", serves=_serves_leaves, measured="4.1 times; EPYC Zen 5, 2026-11-25")
def leaves_in_one_pass(layer: HierarchicalSoftmax, h: Tensor) -> Tensor:
    """Compute log p of each leaf, `[B, L]` in float64; one pass over the nodes for each example."""
    log_leaf = torch.zeros(len(h), layer.tree.leaves, dtype=torch.float64)
    scores = layer.nodes.all_scores(h).to(h.dtype)  # from autocast
    arrays = [*as_arrays(F.logsigmoid(scores), scores), layer.tree.children, log_leaf.numpy()]
    parallel.run((_add_down, *arrays, first, last) for first, last in parallel.cut_evenly(len(h)))
    return log_leaf


@form(
    HierarchicalSoftmax,
    "best",
    serves=_serves_best,
    measured="4.9 times the whole distribution; EPYC Zen 5, 2026-11-25",
    calls=("log_dist", "log_probs", "log_leaves"),
)
def best_first(layer: HierarchicalSoftmax, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k most likely words by best-first descent, which visits few nodes."""
    k, h = min(k, layer.tree.words), h.contiguous()
    leaves, log_p = torch.empty(len(h), k, dtype=torch.int64), torch.empty(len(h), k, dtype=torch.float64)
    nodes = cast(DotNodes, layer.nodes)
    arrays = as_arrays(h, nodes.vectors, nodes.bias)
    cuts = parallel.cut_evenly(len(h), min(parallel.threads(), len(h)))
    parallel.run((_best_first, *arrays, layer.tree.children, leaves.numpy(), log_p.numpy(), *cut) for cut in cuts)
    return torch.from_numpy(layer.tree.leaf_words).long()[leaves], log_p


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, beta: Tensor, alpha: Tensor, pairs: Pairs) -> Tensor:
        p, q = p.contiguous(), q.contiguous()
        ctx.save_for_backward(p, q, beta)
        ctx.pairs = pairs
        scores = p.new_empty(len(pairs.rows))
        arrays = as_arrays(p, q, beta, alpha, pairs.starts, pairs.rows, scores)
        over_segments(_node_scores, arrays, arrays[4], 10 * p.shape[1])  # a tanh takes as long as ten products
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Any, ...]:
        p, q, beta = ctx.saved_tensors
        pairs, grad = ctx.pairs, grad_output[0].contiguous()
        grad_p = torch.empty_like(p)
        inputs = tuple(as_arrays(grad, p, q, beta, pairs.starts, pairs.rows))
        # Each thread has its own sums of the gradients that all examples add to; they are then added in order.
        cuts = parallel.cut_evenly(len(p))
        sums = [(torch.zeros_like(q), torch.zeros_like(beta), q.new_zeros(len(q))) for _ in cuts]
        parallel.run(
            (_node_scores_grad, inputs, grad_p.numpy(), tuple(as_arrays(*partial)), first, last)
            for partial, (first, last) in zip(sums, cuts, strict=True)
        )
        totals = sums[0]
        for partial in sums[1:]:
            for total, more in zip(totals, partial, strict=True):
                total += more
        return grad_p, *totals, None


@njit(cache=True, nogil=True)
def _add_down(log_second: Array, scores: Array, children: Array, log_leaf: Array, first: int, last: int) -> None:
    """Fill log_leaf `[B, L]`, float64, with log p of each leaf, from s and log_second = log sigmoid(s), `[B, N]`.

    log sigmoid(-s) = log sigmoid(s) - s. Nodes precede their children, so that one pass over them suffices.
    """
    nodes = len(children)
    log_node = np.zeros(nodes)
    for b in range(first, last):
        for node in range(nodes):
            reached = log_node[node] if node else 0.0
            second = np.float64(log_second[b, node])
            score = np.float64(scores[b, node])
            first_child = 0.0 if score == -np.inf else second - score
            for side in range(2):
                value = reached + (second if side else first_child)
                child = children[node, side]
                if child >= 0:
                    log_node[child] = value
                else:
                    log_leaf[b, -1 - child] = value


@njit(cache=True, nogil=True, fastmath=FAST)
def _node_scores(
    p: Array, q: Array, beta: Array, alpha: Array, starts: Array, rows: Array, scores: Array, first: int, last: int
) -> None:
    """Compute scores[k] = alpha[u] + beta . tanh(p[b] + q[u]) of the pairs k = (b, u = rows[k]); p `[B, H]`, q `[U,
    H]`.
    """
    width = len(beta)
    for b in range(first, last):
        for k in range(starts[b], starts[b + 1]):
            u = np.uint32(rows[k])
            total = beta.dtype.type(0)
            for j in range(width):
                total += beta[j] * tanh(p[b, j] + q[u, j])
            scores[k] = total + alpha[u]


@njit(cache=True, nogil=True, fastmath=FAST)
def _node_scores_grad(inputs: Any, grad_p: Array, sums: Any, first: int, last: int) -> None:
    """Write the gradient grad_p[b] of _node_scores; add to grad_q `[U, H]`, grad_beta and grad_alpha."""
    (grad, p, q, beta, starts, rows), (grad_q, grad_beta, grad_alpha) = inputs, sums
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
def _all_node_scores(p: Array, q: Array, beta: Array, alpha: Array, scores: Array, first: int, last: int) -> None:
    """Compute scores[b, n] = alpha[n] + beta . tanh(p[b] + q[n]) for every node n."""
    width = len(beta)
    for b in range(first, last):
        for n in range(len(alpha)):
            total = beta.dtype.type(0)
            for j in range(width):
                total += beta[j] * tanh(p[b, j] + q[n, j])
            scores[b, n] = total + alpha[n]


@njit(nogil=True, forceinline=True, fastmath=FAST)
def _dot(a: Array, b: Array) -> Any:
    total = a.dtype.type(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit(cache=True, nogil=True)
def _best_first(
    h: Array, vectors: Array, bias: Array, children: Array, leaves: Array, log_p: Array, first: int, last: int
) -> None:
    """Fill leaves `[B, k]` with the most likely ones after hidden `[B, D]`, the most likely first, and log_p `[B, k]`,
    float64; k is at most the number of leaves.

    vectors `[N, D]` and bias `[N]` score the decision for the second of a node's children `[N, 2]`, leaf l as -1 - l.
    """
    for b in range(first, last):
        # A node's p is at least that of each leaf below it: the first leaf out of the heap is the likeliest of all.
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
