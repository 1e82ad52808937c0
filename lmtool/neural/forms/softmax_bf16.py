"""The full softmax with its gradients by products in bfloat16, sums in float32, on a CPU: by dot products of AVX-512
(forms.tiles.add_dots), or by tiles (forms.softmax_tiles).

Speed over the plain form in float32, each form measured apart, on two threads of an Intel Sapphire Rapids (2026-11):

    words, D, B           tiles   autocast   dots
    10,000, 100, 256        2.8       1.45    .84
    10,000, 100, 1,024      3.4       1.2    1.10
    10,000, 512, 1,024      2.7       2.3     .59
    50,000, 128, 1,024      3.9       1.5     .73

Dots therefore serve only AMD's processors, which have no tiles; an Intel processor without tiles uses autocast.

For each word w and example e, E = exp(s_we - s_ye), where s_we = b_w + u_w . h_e is its score and s_ye the target's:
the sum S_e over the words is 1 / p(y|h), so that no maximum is needed. The first pass goes through blocks of words,
which are rounded to bfloat16 once and stay in the cache: scores, E, and U' E, from which the gradient of h is computed.
The second one adds a multiple of the gradient of U, E (h / S), to U itself or to memory for the gradient. Threads
divide the words among them.

The plain form is FullSoftmax.loss; tests/neural/test_softmax.py compares both.

Legend of shapes: B examples, D dimension of the hidden states, O words; W, E, K their numbers of tiles: ceil(O / 32),
ceil(B / 32) and ceil(D / 32), of 32 numbers each.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.forms import softmax_chunks, tiles
from lmtool.neural.forms.loops import FAST, as_arrays, bfloat16, widen_bfloat16
from lmtool.neural.forms.softmax_chunks import (
    Gradients,
    bf16_form,
    in_bf16,
    loss_with_gradients,
    plain_gradients,
    rows_at_once,
)
from lmtool.neural.forms.tiles import LOG2_E, ROWS, add_dots, exponentials, pack_depth, pack_examples
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel
from lmtool.system.arrays import Array

NO_WORD = -3e38  # bias of the words that pad the last tile, below any score: 2^-126
OVERFLOW = 1e30  # minimum sum at which float32 is unreliable
BLOCK = 4  # tiles of words that stay in the cache
PAIR = 2 * tiles.TILE  # bytes of two tiles side by side, 32 x 32 numbers in bfloat16
PRODUCTS_PER_THREAD = 1 << 23  # B x D x O for which a second thread is worth its start

_memory_of: WeakKeyDictionary[FullSoftmax, Bf16Softmax] = WeakKeyDictionary()


def _serves(layer: FullSoftmax, h: Tensor) -> bool:
    return h.is_cpu and h.dtype == torch.float32 and in_bf16(layer, h) and softmax_chunks.fast_dots()


@bf16_form(serves=_serves, measured="2.1 to 7.7 times fp32, 1.1 to 5.9 autocast; EPYC Zen 4 and 5, 2026-11")
def softmax_bf16(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss with its gradients by dot products; if exponentials overflow, in float32."""
    return loss_by(Bf16Softmax, layer, h, y)


def loss_by(kind: type[Bf16Softmax], layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute the loss with its gradients, chunk by chunk, in memory that is kept for the layer's next batch."""

    def compute(h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, grads: Gradients) -> Tensor:
        loss, rows = 0.0, min(len(h), rows_at_once(h, len(bias)))
        softmax = made_for(kind, _memory_of.pop(layer, None), weight, rows)  # not in use by another thread
        for grad in grads[1:]:
            grad.zero_()
        for first in range(0, len(h), rows):
            some = slice(first, first + rows)
            softmax.forward(weight, bias, h[some], y[some], len(h))
            if softmax.loss == math.inf:
                return plain_gradients(h, weight, bias, y, grads, bf16=False)
            softmax.apply(*grads[1:], 1.0, 1.0)
            grads[0][some] = softmax.grad_h
            loss += softmax.loss
        _memory_of[layer] = softmax
        return h.new_tensor(loss)

    return loss_with_gradients(layer, h, y, compute)


def made_for(kind: type[Bf16Softmax], held: Bf16Softmax | None, weight: Tensor, examples: int) -> Bf16Softmax:
    """Return the held object if it is of this kind and for these sizes and as many threads; else a new one."""
    sizes = len(weight), weight.shape[1], examples
    fits = type(held) is kind and held.made_for == (*sizes, parallel.threads())
    return held if held is not None and fits else kind(*sizes)


class Bf16Softmax:
    """The loss of some examples of a batch with its gradients, and the memory that these need.

    made_for: O, D, the maximum of B, and the number of threads. After `forward`: loss, the sum of -log p over the size
    of the batch, infinite if a p is below 1e-30 or not a number; grad_h: its gradient, `[B, D]`.
    """

    def __init__(self, words: int, dim: int, examples: int) -> None:
        """words: O. dim: D. examples: the maximum of B."""
        self.made_for = words, dim, examples, parallel.threads()
        self.loss, self.grad_h = math.inf, torch.empty(0, dim)
        across, along = -(-words // 32), -(-examples // 32)
        pieces = max(1, min(parallel.threads(), words * dim * examples // PRODUCTS_PER_THREAD))
        self._cuts = parallel.cut_evenly(across, pieces)
        self._powers = memory(across, along, 32, 32, kind=torch.uint16)
        self._h_pairs = memory(along, -(-dim // 32), 32, 32, kind=torch.uint16)
        self._example_pairs = memory(-(-(dim + 1) // 32), along, 32, 32, kind=torch.uint16)
        self._sums, self._totals = memory(pieces, along, dim + -dim % ROWS, 32), memory(pieces, along * 32)
        self._bias, self._reference, self._share = memory(across * 32), memory(along * 32), memory(examples)
        self._bias[:] = NO_WORD
        self._h, self._grad_h = memory(examples, dim + 1), memory(examples, dim)
        self._h[:] = 1  # its last column remains, for the gradient of b

    def forward(self, weight: Tensor, bias: Tensor, h: Tensor, y: Tensor, batch: int) -> None:
        """Compute the loss and grad_h. weight: U `[O, D]`. bias: `[O]`. h: `[B, D]`. y: `[B]`. batch: its size."""
        h_, weight_, bias_, words = as_arrays(h, weight, bias, y)
        _prepare(h_, weight_, bias_, words, self._bias, self._h_pairs, self._reference)
        self._first_pass(weight_)
        grad_h, own, share = (each[: len(h)] for each in (self._grad_h, self._h, self._share))
        sums, written = (self._sums, self._totals, self._powers), (own, share, self._example_pairs, grad_h)
        self.loss = _between(h_, weight_, words, batch, sums, written)
        self.grad_h = torch.from_numpy(grad_h)

    def apply(self, weight: Tensor, bias: Tensor, keep: float, change: float) -> None:
        """Add change times the gradients of U and b to keep weight and to bias: U and b, or memory for gradients."""
        self._second_pass(*as_arrays(weight, bias), np.float32(keep), np.float32(change))

    def square(self) -> float:
        """Return the squared norm of the gradients of U and b: the sum of (delta delta') o (h h'), `[B, B]` each."""
        size = len(self.grad_h)
        delta = torch.from_numpy(self._powers).view(torch.bfloat16).permute(1, 3, 0, 2)  # [E, 32 examples, W, 32 words]
        delta = delta.flatten(2).flatten(0, 1)[:size].float()
        h = torch.from_numpy(self._h[:size] * self._share[:size, None])
        return float((delta @ delta.T * (h @ h.T)).sum(dtype=torch.float64))

    def _first_pass(self, weight: Array) -> None:
        inputs = weight, self._bias, self._h_pairs, self._reference
        parts = zip(self._sums, self._totals, self._cuts, strict=True)
        parallel.run((_first_pass, inputs, self._powers, sums, total, *cut) for sums, total, cut in parts)

    def _second_pass(self, *arguments: Any) -> None:
        parallel.run((_second_pass, self._powers, self._example_pairs, *arguments, *cut) for cut in self._cuts)


def memory(*shape: int, kind: torch.dtype = torch.float32) -> Array:
    """Return zeros at an address that is a multiple of 64, like torch's allocations."""
    array: Array = torch.zeros(shape, dtype=kind).numpy()
    return array


@njit(nogil=True, inline="always")
def _round(value: float) -> Any:
    """Return the nearest bfloat16, as a float32."""
    return widen_bfloat16(bfloat16(value))


@njit(cache=True, nogil=True, forceinline=True, error_model="numpy", fastmath=FAST)
def _target_scores(h: Array, weight: Array, bias: Array, targets: Array, scores: Array) -> None:
    """Write log2(e) times the score of each target, from the same bfloat16 numbers as the products; 0 for padding."""
    scores[:] = 0
    for e in range(len(h)):
        row, total = weight[targets[e]], np.float32(0)
        for d in range(h.shape[1]):
            total += _round(h[e, d] * np.float32(LOG2_E)) * _round(row[d])
        scores[e] = total + bias[targets[e]] * np.float32(LOG2_E)


@njit(cache=True, nogil=True, error_model="numpy")
def _prepare(
    h: Array, weight: Array, bias: Array, targets: Array, scaled: Array, h_pairs: Array, reference: Array
) -> None:
    """Write the inputs of the first pass: log2(e) times b, h and the scores of targets."""
    for w in range(len(bias)):
        scaled[w] = bias[w] * np.float32(LOG2_E)
    pack_depth(h, h_pairs)
    _target_scores(h, weight, bias, targets, reference)


@njit(cache=True, nogil=True, error_model="numpy")
def _first_pass(inputs: Any, powers: Array, sums: Array, total: Array, first: int, last: int) -> None:
    """Make the first pass over tiles of words.

    bias, reference: times log2(e). powers: E in bfloat16, `[W, E, 32 words, 32 examples]`. sums: U' E, `[E, D, 32
    examples]`. total: the sums of E, `[B]`.
    """
    weight, bias, h_pairs, reference = inputs
    sums[:] = 0
    total[:] = 0
    words, dim = weight.shape
    along, deep = h_pairs.shape[:2]
    rows, columns = np.zeros((BLOCK * 32, deep * 32), np.uint16), np.zeros((BLOCK * 16, deep * 32), np.uint32)
    # Scores, then E as right matrices. An array is freed after its last use by name, which must be in the loop.
    scores = np.empty((32 + BLOCK * 16, 32), np.float32)
    row, column = deep * 64, deep * 128  # bytes
    rows_at, columns_at, scores_at = rows.ctypes.data, columns.ctypes.data, scores.ctypes.data
    h_at, powers_at, sums_at, pairs_at = h_pairs.ctypes.data, powers.ctypes.data, sums.ctypes.data, scores_at + 32 * 128
    bias_at, reference_at, total_at = bias.ctypes.data, reference.ctypes.data, total.ctypes.data
    for top in range(first, last, BLOCK):
        height = min(BLOCK, last - top)
        for i in range(min(height * 32, words - top * 32)):
            source, target = weight[top * 32 + i], rows[i]
            for j in range(dim):
                target[j] = bfloat16(source[j])
        for k in range(height * 16):  # pairs of words side by side, as the dot products of U' E read them
            one, other, both = rows[2 * k], rows[2 * k + 1], columns[k]
            for j in range(dim):
                both[j] = np.uint32(one[j]) | np.uint32(np.uint32(other[j]) << np.uint32(16))
        for e in range(along):
            for w in range(height):
                scores[:32] = 0
                for i in range(0, 32, ROWS):
                    left, right = rows_at + (w * 32 + i) * row, h_at + e * deep * PAIR
                    add_dots(scores_at + i * 128, 128, left, row, 4, 64, right, (dim + 1) // 2)  # type: ignore[call-arg]
                exponentials(  # type: ignore[call-arg]
                    scores_at,
                    bias_at + (top + w) * 128,
                    reference_at + e * 128,
                    total_at + e * 128,
                    powers_at + ((top + w) * along + e) * PAIR,
                    pairs_at + w * PAIR,
                )
            for d in range(0, dim, ROWS):
                place, left = sums_at + e * sums.strides[0] + d * 128, columns_at + d * 4
                add_dots(place, 128, left, 4, column, 16 * column, pairs_at, 16 * height)  # type: ignore[call-arg]


@njit(cache=True, nogil=True, error_model="numpy")
def _between(h: Array, weight: Array, targets: Array, batch: int, of_first_pass: Any, written: Any) -> Any:
    """Return the loss; write what the second pass reads, share, 1 / (S B), and the gradient of h. Of the first pass:
    sums and totals of each thread, and the powers.

    E of a target, 1, becomes 1 - S, so that p - 1 is exact to the last digits of a bfloat16: after the products it
    would be a small difference of two large rounded numbers.
    """
    (sums, totals, powers), (h_and_one, share, example_pairs, grad_h) = of_first_pass, written
    loss, each = 0.0, np.float32(1 / batch)
    for b in range(len(h)):
        e, place, word = b // 32, b % 32, targets[b]
        total: Any = np.float32(0)
        for k in range(len(totals)):
            total += totals[k, b]
        if not total < OVERFLOW:  # also for NaN
            return math.inf
        loss += math.log(total)
        share[b] = each / total
        powers[word // 32, e, word % 32, place] = bfloat16(np.float32(1) - total)
        for d in range(h.shape[1]):
            h_and_one[b, d] = h[b, d]
            value: Any = np.float32(0)
            for k in range(len(sums)):
                value += sums[k, e, d, place]
            grad_h[b, d] = value * share[b] - _round(weight[word, d]) * each
    pack_examples(h_and_one, share, example_pairs)
    return loss / batch


@njit(nogil=True, forceinline=True, fastmath=FAST)
def add_rows(sums: Array, weight: Array, bias: Array, keep: float, change: float, top: int) -> None:
    """Add change times gradients of U and b, side by side in the rows of sums, to rows from top on, if they exist."""
    words, dim = weight.shape
    for i in range(min(len(sums), words - top)):
        row, more = weight[top + i], sums[i]
        for j in range(dim):
            row[j] = keep * row[j] + change * more[j]
        bias[top + i] += change * more[dim]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _second_pass(
    powers: Array, h_pairs: Array, weight: Array, bias: Array, keep: float, change: float, first: int, last: int
) -> None:
    """Make the second pass over tiles of words; h_pairs: of h / S and, for b, 1 / S."""
    deep, along = h_pairs.shape[:2]
    sums = np.empty((ROWS, deep * 32), np.float32)
    sums_at, powers_at, h_at = sums.ctypes.data, powers.ctypes.data, h_pairs.ctypes.data
    for top in range(first * 32, min(last * 32, len(weight)), ROWS):
        sums[:] = 0
        left = powers_at + top // 32 * along * PAIR + top % 32 * 64
        for d in range(deep):
            place, right = sums_at + d * 128, h_at + d * along * PAIR
            add_dots(place, deep * 128, left, 64, 4, PAIR, right, 16 * along)  # type: ignore[call-arg]
        add_rows(sums, weight, bias, keep, change, top)
