"""A whole training step of the plain network by stochastic gradient descent, without an autograd graph: gradients are
applied as soon as they are computed. Beside the ordinary step, 30/100, processor time of one thread: the hierarchical
softmax 1.8 times as fast at batch 1,024, 4.3 at 32; NCE with 100 noise words 1.5 and 2.7 (AMD EPYC, 2026-11-26).

The network is Bengio et al.'s (2003, eq. 1): x the embeddings of the context side by side, a = f(d + H x), scores
b + U a, or b + U [a, x] with direct connections, and a softmax over them. The step is w <- w - rate (scale g + decay w)
for the matrices and for the embeddings of the batch, without decay for d and b, where scale brings the norm of all
gradients together down to a given one. tests/neural/test_network_step.py compares it with autograd and torch's SGD,
its plain form: in a small network their overhead takes longer than the arithmetic.

Legend of shapes: B examples, C context words, E dimension of the embeddings, I = C E, H hidden units, D = H or H + I,
O words that can be predicted, V words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from lmtool.config.training import Precision
from lmtool.neural.checks import all_below
from lmtool.neural.encoders.nplm import NPLM
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import _network_output, allowed, tiles
from lmtool.neural.forms.hidden_units import NUMBERS, activate, apply_activation, slopes
from lmtool.neural.forms.loops import FAST, Groups, as_arrays, copy_row, exp_below, runs_compiled
from lmtool.neural.forms.softmax_bf16 import Bf16Softmax, made_for
from lmtool.neural.forms.softmax_chunks import fast_dots, in_bf16
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.hierarchical import DotNodes, HierarchicalSoftmax
from lmtool.neural.outputs.nce import NCELoss
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel
from lmtool.system.arrays import Array

MAX_LOOP_PRODUCTS = 1 << 21  # B x (I H + D O) up to which one compiled loop does the whole step
MAX_SCORES = 1 << 20  # maximum per batch: with more, the time to build a graph is negligible


class NetworkStep:
    """Steps of one network, and the memory that they need.

    weights: embeddings `[V, E]`, H `[H, I]`, d `[H]`, U `[O, D]`, b `[O]`.
    direct: whether there are direct connections.
    bf16: whether the products with U are in bfloat16 (forms.softmax_bf16); all weights are float32 then.
    layer: the hierarchical softmax or NCE that has U, of its nodes or words, and b; None for the full softmax.
    decay: weight decay.
    max_norm: maximum norm of the gradients; None for no limit.
    """

    name = "network_step"

    def __init__(
        self,
        weights: Sequence[Tensor],
        activation: Activation,
        decay: float,
        max_norm: float | None,
        *,
        direct: bool,
        bf16: bool = False,
        layer: HierarchicalSoftmax | NCELoss | None = None,
    ) -> None:
        self.weights, self.bf16, self._layer = weights, bf16, layer
        self._activation, self._direct = NUMBERS[activation], direct
        self._decay, self._max_norm = decay, max_norm
        self._arrays = tuple(as_arrays(*(weight.view(-1, weight.shape[-1]) for weight in weights)))
        self._memory: tuple[Array, ...] = ()
        self._numbers = np.full((parallel.threads(), len(weights[-1])), -1, np.int32)
        self._scores = torch.empty(0)
        self._softmax: Bf16Softmax | None = None

    def step(self, contexts: Tensor, targets: Tensor, rate: float, limit: float) -> float:
        """Make a step; return the mean of -log p over the batch, in nats, before it.

        contexts: `[B, C]`, targets: `[B]`, int64. limit: with a loss that is not below it, no step is made. Raises
        IndexError for ids out of range.
        """
        embeddings, hidden, _, output, _ = self.weights
        words = self._layer.tree.words if isinstance(self._layer, HierarchicalSoftmax) else len(output)
        for ids, count in ((contexts, len(embeddings)), (targets, words)):
            if not all_below(ids.numpy().ravel(), count):
                raise IndexError("ids out of range")
        small = len(targets) * (hidden.numel() + output.numel()) <= MAX_LOOP_PRODUCTS
        with torch.no_grad():
            if small and self._layer is None:
                return self._in_one_loop(contexts, targets, rate, limit)
            return self._by_products(contexts, targets, rate, limit)

    def _in_one_loop(self, contexts: Tensor, targets: Tensor, rate: float, limit: float) -> float:
        size, (vectors, hidden, _, output, _) = len(targets), self._arrays
        if not self._memory or len(self._memory[0]) != size:
            shapes = (size, hidden.shape[1]), (size, len(hidden)), (size, output.shape[1]), (size, len(output))
            self._memory = tuple(np.zeros(shape, vectors.dtype) for shape in (*shapes, vectors.shape))
        numbers = rate, self._decay, math.inf if self._max_norm is None else self._max_norm, limit
        ids, form = (contexts.numpy(), targets.numpy()), (self._activation, self._direct)
        loss: float = _step(self._arrays, ids, form, numbers, self._memory)
        return loss

    def _by_products(self, contexts: Tensor, targets: Tensor, rate: float, limit: float) -> float:
        """Make a step by products of torch."""
        embeddings, hidden, hidden_bias, *output = self.weights
        weights = output[0], output[1]
        size, width, layer, activation = len(targets), len(hidden), self._layer, self._activation
        ids = contexts.reshape(-1)
        x = embeddings.index_select(0, ids).view(size, -1)
        z = torch.addmm(hidden_bias, x, hidden.T)
        by_paths = isinstance(layer, HierarchicalSoftmax)  # the layer applies f itself
        a = z if by_paths else apply_activation(z, activation)
        h = torch.cat([a, x], 1) if self._direct else a
        if isinstance(layer, NCELoss):
            of_output: Any = _network_output.noise_gradients(layer, weights, h, targets)
        elif layer is not None:
            form = activation, width
            of_output = _network_output.path_gradients(layer, weights, h, targets, form, self._numbers)
        else:
            of_output = None
            if self.bf16:
                of_output = self._softmax = made_for(Bf16Softmax, self._softmax, weights[0], size)
                of_output.forward(*weights, h, targets, size)
            if of_output is None or of_output.loss == math.inf:
                if len(self._scores) != size * len(weights[0]):
                    self._scores = h.new_empty(size * len(weights[0]))
                of_output = _network_output.FactoredGradients(*weights, h, targets, self._scores)
        loss: float = of_output.loss
        if not loss < limit:
            return loss
        grad_h = of_output.grad_h
        grad_z = grad_h[:, :width]
        if not by_paths:
            grad_z = apply_activation(z, activation, slope=True).mul_(grad_z)
        grad_hidden, grad_bias = torch.mm(grad_z.T, x), grad_z.sum(0)
        grad_x = torch.mm(grad_z, hidden, out=x)
        if self._direct:
            grad_x += grad_h[:, width:]
        groups = Groups(ids)
        rows, grad_rows = torch.from_numpy(groups.unique), groups.sums(grad_x.view(len(ids), -1))
        scale = 1.0
        if self._max_norm is not None:
            square = of_output.square()
            for grad in (grad_hidden, grad_bias, grad_rows):
                square += float(grad.square().sum(dtype=torch.float64))
            scale = min(1.0, self._max_norm / (math.sqrt(max(square, 0.0)) + 1e-6))
        change, keep = -rate * scale, 1 - rate * self._decay
        of_output.apply(*weights, keep, change)
        hidden.mul_(keep).add_(grad_hidden, alpha=change)
        hidden_bias.add_(grad_bias, alpha=change)
        _network_output.add_to_rows(embeddings, rows, grad_rows, keep, change)
        return loss


def network_step(model: NeuralModel, decay: float, examples: int, max_norm: float | None) -> NetworkStep | None:
    """Return the steps of a model with batches of that many examples, or None: for any other network, and if the scores
    of a batch are many, or computed by tiles or autocast. Other arguments: as of NetworkStep.
    """
    encoder, output = model.encoder, model.output
    if not (allowed() and type(encoder) is NPLM) or output.precision is Precision.bf16:
        return None
    settings, vectors = encoder.config, encoder.embedding.weight
    more = settings.dropout or settings.input_dropout or settings.gated or encoder.history or encoder.norms
    dense = not encoder.embedding.sparse
    if more or dense or encoder.project or len(encoder.layers) != 1 or not runs_compiled(vectors):
        return None
    scorer: Any = getattr(output, "nodes", output)
    of_rows, bf16 = type(output) is not FullSoftmax, False
    if type(output) is FullSoftmax:
        bf16 = in_bf16(output, vectors.new_empty(examples, encoder.output_dim))
        fits = examples * len(output.bias) <= MAX_SCORES and not (bf16 and (tiles.fit(vectors) or not fast_dots()))
    elif type(output) is HierarchicalSoftmax:
        fits = type(scorer) is DotNodes and output.tree.leaves == output.tree.words > 1
    else:
        fits = type(output) is NCELoss and output.shared and output.normalizer is None
    if not fits or (of_rows and (not scorer.sparse or model.encodes_in_bf16(examples))):
        return None
    if len(scorer.vectors) != len(scorer.bias) or scorer.vectors is vectors:  # tied
        return None
    layer, of_output = cast(nn.Linear, encoder.layers[0]), cast(Any, output if of_rows else None)
    weights = vectors, layer.weight, layer.bias, scorer.vectors, scorer.bias
    direct = settings.direct_connections
    return NetworkStep(weights, settings.activation, decay, max_norm, direct=direct, bf16=bf16, layer=of_output)


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _multiply(left: Array, right: Array, out: Array) -> None:
    """Add the product of left `[M, K]` and right `[K, N]` to out `[M, N]`.

    For small matrices, without the overhead of a call for each product.
    """
    rows, terms = len(left) - len(left) % 4, len(right) - len(right) % 4
    for m in range(0, rows, 4):  # each read of right is used for four rows
        a, b, c, d = left[m], left[m + 1], left[m + 2], left[m + 3]
        of_a, of_b, of_c, of_d = out[m], out[m + 1], out[m + 2], out[m + 3]
        for k in range(0, terms, 4):  # sums are read and written once for four terms
            r0, r1, r2, r3 = right[k], right[k + 1], right[k + 2], right[k + 3]
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
            d0, d1, d2, d3 = d[k], d[k + 1], d[k + 2], d[k + 3]
            for n in range(len(r0)):
                x0, x1, x2, x3 = r0[n], r1[n], r2[n], r3[n]
                of_a[n] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                of_b[n] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                of_c[n] += (c0 * x0 + c1 * x1) + (c2 * x2 + c3 * x3)
                of_d[n] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)
    for m in range(len(left)):
        row, factors = out[m], left[m]
        for k in range(terms if m < rows else 0, len(right)):
            factor, one = factors[k], right[k]
            for n in range(len(row)):
                row[n] += factor * one[n]


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _square(values: Array) -> Any:
    total = 0.0
    for i in range(len(values)):
        part = values.dtype.type(0)
        for j in range(values.shape[1]):
            part += values[i, j] * values[i, j]
        total += part
    return total


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _change(weight: Array, grad: Array, keep: Any, change: Any) -> None:
    for i in range(len(weight)):
        for j in range(weight.shape[1]):
            weight[i, j] = weight[i, j] * keep + grad[i, j] * change


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _step(weights: Any, ids: Any, form: Any, numbers: Any, memory: Any) -> Any:
    """Make a step; return the loss. Biases are `[1, H]` and `[1, O]`. Memory: x `[B, I]`, z `[B, H]`, h `[B, D]`, delta
    `[B, O]`; grad_vectors `[V, E]`, 0.
    """
    (vectors, hidden, hidden_bias, output, output_bias), (contexts, targets) = weights, ids
    (activation, direct), (rate, decay, max_norm, limit) = form, numbers
    x, z, h, delta, grad_vectors = memory
    size, words = contexts.shape
    dim, width, outputs = vectors.shape[1], len(hidden), len(output)
    zero, each = vectors.dtype.type(0), vectors.dtype.type(1 / size)
    for b in range(size):
        for c in range(words):
            copy_row(vectors[contexts[b, c]], x[b, c * dim : (c + 1) * dim])
        copy_row(hidden_bias[0], z[b])
        copy_row(output_bias[0], delta[b])
    # Forward: z = d + x H', h = [f(z), x], and the scores b + h U', in memory that began as the biases.
    _multiply(x, hidden.T.copy(), z)
    for b in range(size):
        copy_row(z[b], h[b, :width])
        activate(h[b, :width], activation)
        if direct:
            copy_row(x[b], h[b, width:])
    _multiply(h, output.T.copy(), delta)
    loss = 0.0
    for b in range(size):
        row = delta[b]
        largest = row[0]  # subtracted, so that no exponential overflows
        for j in range(outputs):
            largest = max(largest, row[j])
        own, total = row[targets[b]] - largest, zero
        for j in range(outputs):
            row[j] = exp_below(row[j] - largest)
            total += row[j]
        loss += math.log(total) - own
        share = each / total
        for j in range(outputs):
            row[j] *= share
        row[targets[b]] -= each
    loss /= size
    if not loss < limit:
        return loss
    # Backward: all gradients before the first change of a weight, since clipping needs the norm of all.
    grad_h = np.zeros(h.shape, h.dtype)
    _multiply(delta, output, grad_h)
    grad_output, grad_hidden = np.zeros(output.shape, h.dtype), np.zeros(hidden.shape, h.dtype)
    _multiply(delta.T.copy(), h, grad_output)
    for b in range(size):
        slopes(z[b], activation)
        for j in range(width):
            z[b, j] *= grad_h[b, j]
    _multiply(z.T.copy(), x, grad_hidden)
    grad_x = grad_h[:, width:].copy() if direct else np.zeros(x.shape, x.dtype)
    _multiply(z, hidden, grad_x)
    grad_hidden_bias, grad_output_bias = np.zeros((1, width), h.dtype), np.zeros((1, outputs), h.dtype)
    seen = np.zeros(len(vectors), np.bool_)
    for b in range(size):
        for j in range(width):
            grad_hidden_bias[0, j] += z[b, j]
        for j in range(outputs):
            grad_output_bias[0, j] += delta[b, j]
        for c in range(words):
            word = contexts[b, c]
            seen[word] = True
            for j in range(dim):
                grad_vectors[word, j] += grad_x[b, c * dim + j]
    scale = 1.0
    if max_norm < math.inf:
        square = _square(grad_output) + _square(grad_hidden)
        square += _square(grad_hidden_bias) + _square(grad_output_bias)
        for word in range(len(vectors)):
            if seen[word]:
                square += _square(grad_vectors[word : word + 1])
        scale = min(1.0, max_norm / (math.sqrt(square) + 1e-6))
    # Update; of the embeddings only the rows of the batch, whose gradients are 0 again for the next one.
    keep, change = vectors.dtype.type(1 - rate * decay), vectors.dtype.type(-rate * scale)
    _change(output, grad_output, keep, change)
    _change(hidden, grad_hidden, keep, change)
    _change(hidden_bias, grad_hidden_bias, zero + 1, change)
    _change(output_bias, grad_output_bias, zero + 1, change)
    for word in range(len(vectors)):
        if seen[word]:
            _change(vectors[word : word + 1], grad_vectors[word : word + 1], keep, change)
            grad_vectors[word] = zero
    return loss
