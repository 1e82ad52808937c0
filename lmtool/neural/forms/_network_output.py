"""The output layers of forms.network_step: loss, gradients, and the update of U and b.

A full softmax in the weights' dtype (in bfloat16: forms.softmax_bf16); a hierarchical softmax and NCE, which use some
rows of U and b.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, R rows that a batch uses,
P pairs (example, node on its path), k noise words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.forms.hidden_units import TANH, activate, slopes
from lmtool.neural.forms.loops import FAST, Groups, as_arrays, copy_row, exp_below
from lmtool.neural.optimizers.base import change_rows
from lmtool.neural.optimizers.rows import sgd_rows
from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax
from lmtool.neural.outputs.nce import NCELoss
from lmtool.system import parallel
from lmtool.system.arrays import Array

AT_ONCE = 8  # examples whose paths are read together
NUMBERS_PER_THREAD = 1 << 21  # with fewer, adding up the gradients of two threads takes longer than it saves


class FactoredGradients:
    """Gradients in the dtype of the weights. The gradient of U, delta h, is added to U as a product and never stored;
    delta is p minus the one-hot targets, divided by B.

    loss: the mean of -log p. grad_h: `[B, D]`.
    """

    def __init__(self, output: Tensor, bias: Tensor, h: Tensor, targets: Tensor, scores: Tensor) -> None:
        """output: U `[O, D]`. bias: b `[O]`. h: `[B, D]`. targets: `[B]`, int64. scores: memory for B O scores."""
        self._h = h
        self._delta = torch.mm(output, h.T, out=scores.view(len(output), len(h)))
        words, delta = targets.numpy(), self._delta.numpy()
        losses, share, largest = (h.new_empty(len(h)).numpy() for _ in range(3))
        _exp_columns(delta, bias.numpy(), words, losses, share, largest)
        self.loss = float(losses.sum(dtype=np.float64)) / len(h)
        _softmax_gradient(delta, words, share)
        self.grad_h = torch.mm(self._delta.T, output)

    def square(self) -> float:
        """Return the squared norm of the gradients of U and b: the sum of (delta delta') o (h h' + 1), all `[B, B]`."""
        both = torch.mm(self._delta.T, self._delta) * (torch.mm(self._h, self._h.T) + 1)
        return float(both.sum(dtype=torch.float64))

    def apply(self, output: Tensor, bias: Tensor, keep: float, change: float) -> None:
        """Add change times their gradients to keep U and to b."""
        torch.addmm(output, self._delta, self._h, beta=keep, alpha=change, out=output)
        bias.add_(self._delta.sum(1), alpha=change)


@dataclass(frozen=True, slots=True)
class RowGradients:
    """Gradients of U and b, `[R, D]` and `[R]`, in the rows that a batch uses, `[R]`; only these rows decay.

    loss: the mean over the batch. grad_h: `[B, D]`.
    """

    loss: float
    grad_h: Tensor
    rows: Tensor
    grad: Tensor
    grad_bias: Tensor

    def square(self) -> float:
        """Return the squared norm of the gradients of U and b."""
        return float(self.grad.square().sum(dtype=torch.float64) + self.grad_bias.square().sum(dtype=torch.float64))

    def apply(self, output: Tensor, bias: Tensor, keep: float, change: float) -> None:
        """Add change times their gradients to keep U and to b."""
        add_to_rows(output, self.rows, self.grad, keep, change)
        add_to_rows(bias[:, None], self.rows, self.grad_bias[:, None], 1.0, change)


def add_to_rows(weight: Tensor, rows: Tensor, grad: Tensor, keep: float, change: float) -> None:
    """Add change times a gradient `[R, D]` to keep weight[rows]."""
    change_rows(sgd_rows, rows, weight, grad, [weight], -change, keep, 0.0)


def path_gradients(
    layer: HierarchicalSoftmax, weights: Sequence[Tensor], z: Tensor, y: Tensor, form: Any, numbers: Array
) -> RowGradients:
    """Compute a hierarchical softmax with dot products and one code for each word: -log sigmoid(+- s), summed.

    form: an activation f, and the number of columns of z `[B, D]` to apply it to; grad_h is the gradient of z, and
    replaces it. numbers: memory for each thread, int32 `[T, N]`, -1 also afterwards.
    """
    paths, pairs = layer.tree.paths, len(y) * layer.tree.nodes.bit_length()
    pieces = min(parallel.threads(), len(numbers), pairs * z.shape[1] // NUMBERS_PER_THREAD)
    cuts = parallel.cut_evenly(len(y), max(1, pieces))
    arrays = tuple(as_arrays(*weights)), z.numpy(), y.numpy(), (paths.offsets, paths.nodes, paths.bits), form
    calls = ((_along_paths, *arrays, own, *cut) for own, cut in zip(numbers, cuts, strict=False))
    losses, *found = zip(*parallel.run(calls), strict=True)
    nodes, grad, grad_bias = (torch.from_numpy(np.concatenate(each) if len(cuts) > 1 else each[0]) for each in found)
    if len(cuts) > 1:  # several threads may have the same node
        groups = Groups(nodes)
        nodes, grad = torch.from_numpy(groups.unique), groups.sums(grad)
        grad_bias = groups.sums(grad_bias[:, None])[:, 0]
    return RowGradients(sum(losses) / len(y), z, nodes, grad, grad_bias)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _along_paths(
    weights: Any, z: Array, leaves: Array, paths: Any, form: Any, numbers: Array, first: int, last: int
) -> tuple[Any, Array, Array, Array]:
    """Replace z of some examples by its gradient.

    Returns the sum of their losses, the different nodes on the paths to their leaves in order of appearance, and the
    gradients of these nodes.

    A few examples at a time, so that their hidden units and nodes stay in the processor's first cache.
    """
    (weight, bias), (offsets, nodes, bits), (activation, width) = weights, paths, form
    pairs, count, total = 0, 0, 0.0
    for b in range(first, last):
        pairs += offsets[leaves[b] + 1] - offsets[leaves[b]]
    dim, one, each = z.shape[1], z.dtype.type(1), z.dtype.type(1 / len(z))
    h, grad_h, scores = np.empty((AT_ONCE, dim), z.dtype), np.empty(dim, z.dtype), np.empty(pairs, z.dtype)
    rows, grad, grad_bias = np.empty(pairs, np.int64), np.empty((pairs, dim), z.dtype), np.empty(pairs, z.dtype)
    for begin in range(first, last, AT_ONCE):
        end, p = min(begin + AT_ONCE, last), 0
        for b in range(begin, end):
            own = h[b - begin]
            copy_row(z[b], own)
            activate(own[:width], activation)
            for k in range(offsets[leaves[b]], offsets[leaves[b] + 1]):
                node = np.uint32(nodes[k])
                row, score = weight[node], bias[node]
                for j in range(dim):
                    score += own[j] * row[j]
                scores[p] = -score if bits[k] else score
                p += 1
        total += _softplus(scores[:p])
        p = 0
        for b in range(begin, end):
            own = h[b - begin]
            grad_h[:] = 0
            for k in range(offsets[leaves[b]], offsets[leaves[b] + 1]):
                node = np.uint32(nodes[k])
                if numbers[node] < 0:
                    numbers[node], rows[count], grad[count], grad_bias[count] = count, node, 0, 0
                    count += 1
                u, factor = np.uint32(numbers[node]), -scores[p] * each if bits[k] else scores[p] * each
                row, sums = weight[node], grad[u]
                for j in range(dim):
                    grad_h[j] += factor * row[j]
                    sums[j] += factor * own[j]
                grad_bias[u] += factor
                p += 1
            if activation != TANH:
                slopes(z[b, :width], activation)
            for j in range(width):  # tanh' from tanh: 12 % of the time of all this
                z[b, j] = grad_h[j] * (one - own[j] * own[j] if activation == TANH else z[b, j])
            copy_row(grad_h[width:], z[b, width:])
    for k in range(count):
        numbers[np.uint32(rows[k])] = -1
    return total, rows[:count], grad[:count], grad_bias[:count]


def noise_gradients(layer: NCELoss, weights: Sequence[Tensor], h: Tensor, y: Tensor) -> RowGradients:
    """Compute NCE with noise words that the batch shares, drawn by torch."""
    draws, size = layer.table.draw(layer.noise), len(y)
    words = torch.cat([y, draws])
    u, b, log_kq = (weight.index_select(0, words) for weight in (*weights, layer.log_kq))
    (own, noise), b, grad = torch.split(u, [size, len(draws)]), b.sub_(log_kq), torch.empty_like(u)
    real = torch.mul(h, own, out=grad[:size]).sum(1).add_(b[:size]).neg_()  # [B]
    fake = torch.addmm(b[size:], h, noise.T)  # [B, k]
    loss = (_softplus(real.numpy()) + _softplus(fake.view(-1).numpy())) / size
    real, fake = real.div_(-size)[:, None], fake.div_(size)
    grad_h = torch.addmm(own.mul_(real), fake, noise)
    torch.mul(h, real, out=grad[:size])
    torch.mm(fake.T, h, out=grad[size:])
    groups, grad_bias = Groups(words), torch.cat([real, fake.sum(0)[:, None]])
    of_rows = torch.from_numpy(groups.unique), groups.sums(grad), groups.sums(grad_bias)[:, 0]
    return RowGradients(loss, grad_h, *of_rows)


@njit(cache=True, nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _softplus(x: Array) -> Any:
    """Return the sum of log(1 + exp(x)), and replace each x `[N]` by its derivative."""
    zero, one, total = x.dtype.type(0), x.dtype.type(1), 0.0
    for first in range(0, len(x), 64):
        part, product, linear = x[first : first + 64], one, zero
        for j in range(len(part)):  # one logarithm of their product, which is at most 2^64
            e = exp_below(-abs(part[j]))
            product *= one + e
            linear += part[j] if part[j] > zero else zero
            part[j] = (one if part[j] >= zero else e) / (one + e)
        total += math.log(product) + linear
    return total


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _exp_columns(scores: Array, bias: Array, targets: Array, loss: Array, share: Array, largest: Array) -> None:
    """Turn scores `[O, b]`, a column for each example, into exp(score + bias - maximum).

    share[i] becomes 1 over the sum of a column, loss[i] -log p(target). Loops run over the examples in the innermost
    place, where they are vectorized: scores are transposed, since with few examples W h' is faster than h W' (MKL of
    torch 2.13). Plain form: log_softmax and nll_loss of h W' + b. largest: memory `[b]`.
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
def _softmax_gradient(exponentials: Array, targets: Array, share: Array) -> None:
    """Turn the exponentials of _exp_columns, `[O, b]`, into the gradient of the scores: (p - onehot) / b."""
    outputs, examples = exponentials.shape
    each = exponentials.dtype.type(1 / examples)
    for j in range(outputs):
        for i in range(examples):
            exponentials[j, i] *= share[i] * each
    for i in range(examples):
        exponentials[targets[i], i] -= each
