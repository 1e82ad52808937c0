"""The full softmax with its gradients by products of tiles in bfloat16 (forms.tiles), sums in float32.

For each word w and example e the first pass computes E = exp(s_we - s_ye), where s_we = b_w + u_w . h_e is its score
and s_ye the target's: the sum over the words is 1 / p(y|h), so that no maximum is needed. It goes through blocks of
words that stay in the cache while the examples pass, and adds W' E to the gradient of h at once. When the sums are
known, the second pass computes the gradient of W, E (share h). Threads divide the words among them.

If E would overflow, i.e. p(y|h) is below 1e-30, None is returned, and the caller works in float32. The plain form is
FullSoftmax.loss; tests/neural/test_softmax_tiles.py compares both.

Legend of shapes: B examples, D dimension, O words; W, E, K their numbers of tiles: ceil(O / 32), ceil(B / 32) and
ceil(D / 32), of 32 numbers each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numba import njit

from lmtool.neural.forms import form, tiles
from lmtool.neural.forms._fast_math import bfloat16, widened
from lmtool.neural.forms.loops import FAST, as_arrays
from lmtool.neural.forms.softmax_chunks import Gradients, in_bf16, loss_with_gradients, plain_gradients
from lmtool.neural.forms.tiles import LOG2_E, exponentials, pack_depth, pack_examples, pack_weight
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel
from lmtool.system.arrays import Array

NO_WORD = -1e4  # bias of the words that pad the last tile: 2^-126 at most
OVERFLOW = 1e30  # from this sum on float32 cannot be trusted
MAX_EXPONENTIALS = 1 << 25  # exponentials that exist at once
BLOCK_NUMBERS = 1 << 17  # numbers of W in a block of words
NEAR_NUMBERS = 1 << 18  # numbers of h that pass for each block of words
PAIR = 2 * tiles.TILE  # bytes of two tiles side by side, 32 x 32 numbers in bfloat16


_memory_of: WeakKeyDictionary[FullSoftmax, TileSoftmax] = WeakKeyDictionary()


def _serves(layer: FullSoftmax, h: torch.Tensor) -> bool:
    return tiles.fit(h) and in_bf16(layer, h)


@form(
    FullSoftmax,
    "loss",
    serves=_serves,
    measured="with AMX, before 0.7.0; not measured since",
    tolerance=0.02,
    bf16=True,
    calls=("word_vectors",),
)
def softmax_tiles(layer: FullSoftmax, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute the loss with its gradients by tiles; if they overflow, in float32."""

    def compute(
        h: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, grads: Gradients
    ) -> torch.Tensor:
        held, wanted = _memory_of.get(layer), (*weight.shape, len(h))
        if held is None or not held.serves(*wanted):
            held = _memory_of[layer] = TileSoftmax(*wanted)
        h_, weight_, bias_, words = as_arrays(h, weight, bias, y)
        loss = held.loss_and_gradients(h_, weight_, bias_, words, as_arrays(*grads))
        return plain_gradients(h, weight, bias, y, grads, bf16=False) if loss is None else h.new_tensor(loss)

    return loss_with_gradients(layer, h, y, compute)


class TileSoftmax:
    """The passes over one weight matrix, and the memory that they need."""

    def __init__(self, words: int, dim: int, examples: int) -> None:
        """words: O. dim: D. examples: B, the maximum in a batch; they are processed in parts if O is large.

        Raises ValueError if the processor has no tiles.
        """
        if not tiles.available():  # requests them: without that they are illegal instructions
            raise ValueError("TileSoftmax: this processor has no tiles for bfloat16")
        threads = parallel.threads()
        self._serves = words, dim, examples, threads
        across, deep = -(-words // 32), -(-dim // 32)
        self.examples = min(-(-examples // 32), max(1, MAX_EXPONENTIALS // (across * 1024))) * 32
        along = self.examples // 32
        self._cuts = parallel.cut_evenly(across, threads)
        self._block = max(1, min(16, BLOCK_NUMBERS // (dim * 32)))
        self._near = max(1, NEAR_NUMBERS // (dim * 32))
        bits, numbers = torch.uint16, torch.float32
        self._weight = _memory(across * 2, deep, 16, 32, kind=bits)
        self._weight_columns = _memory(deep, across, 32, 32, kind=bits)
        self._exponentials = _memory(across, along, 32, 32, kind=bits)
        self._h_pairs = _memory(along, deep, 32, 32, kind=bits)
        self._example_pairs = _memory(deep, along, 32, 32, kind=bits)
        self._bias = np.full(across * 32, NO_WORD, dtype=np.float32)
        self._reference, self._share = (np.zeros(self.examples, dtype=np.float32) for _ in range(2))
        self._of_threads = [
            (
                _memory(along, deep, 4, 16, 16, kind=numbers),  # gradient of h
                _memory(self.examples, kind=numbers),  # sums
                _memory(32, 32, kind=numbers),  # one block of scores
                _memory(self._block, 2, 16, 16, kind=torch.int32),  # exponentials of one block of words
            )
            for _ in range(threads)
        ]
        self._configuration = tiles.configuration()

    def serves(self, words: int, dim: int, examples: int) -> bool:
        """Return whether it was made for these sizes, and for the current number of threads."""
        return self._serves == (words, dim, examples, parallel.threads())

    def loss_and_gradients(
        self, h: Array, weight: Array, bias: Array, targets: Array, grads: Sequence[Array]
    ) -> float | None:
        """Return the mean of -log p(y|h) over hidden states `[B, D]` and targets `[B]`, or None if it overflows.

        weight: `[O, D]`. grads: of h, weight and bias, all float32, which are set; undefined after None.
        """
        self._bias[: len(bias)] = bias * np.float32(LOG2_E)
        parallel.run((pack_weight, weight, self._weight, self._weight_columns, *cut) for cut in self._cuts)
        total = 0.0
        for first in range(0, len(h), self.examples):
            some = slice(first, first + self.examples)
            of_words = (weight, bias, *grads[1:])
            part = self._part(h[some], targets[some], len(h), of_words, grads[0][some], keep=first > 0)
            if part is None:
                return None
            total += part
        return total / len(h)

    def _part(
        self, h: Array, targets: Array, batch: int, of_words: tuple[Array, ...], grad_h: Array, *, keep: bool
    ) -> float | None:
        """Return the sum of -log p over a part of the batch; keep: whether to add to the gradients of words."""
        weight, bias, grad_weight, grad_bias = of_words
        count = -(-len(h) // 32)
        reference, share = self._reference[: count * 32], self._share[: count * 32]
        pack_depth(h, self._h_pairs)
        target_scores(h, weight, bias, targets, reference)
        partial = self._of_threads
        parallel.run(
            (_exponentials, self._configuration, self._weight, self._weight_columns, self._h_pairs, self._bias,
             reference, self._exponentials, *partial[k], first, last, self._block, self._near)
            for k, (first, last) in enumerate(self._cuts)
        )  # fmt: skip
        sums = [memory[1] for memory in partial]
        total = np.sum([of_thread[: len(h)] for of_thread in sums], axis=0, dtype=np.float64)
        if not total.max() < OVERFLOW:  # also for NaN
            return None
        share[:] = 0
        share[: len(h)] = 1 / (total * batch)
        pack_examples(h, share, self._example_pairs)
        parallel.run(
            (_weight_gradient, self._configuration, self._exponentials, self._example_pairs, share, h, targets, batch,
             partial[k][2], grad_weight, grad_bias, first, last, keep)
            for k, (first, last) in enumerate(self._cuts)
        )  # fmt: skip
        sum_h = partial[0][0]
        for memory in partial[1:]:
            sum_h += memory[0]
        _hidden_gradient(sum_h, share, weight, targets, batch, grad_h)
        return float(np.log(total).sum())


def _memory(*shape: int, kind: torch.dtype) -> Array:
    """Return zeros at an address that is a multiple of 64, as torch allocates them."""
    array: Array = torch.zeros(shape, dtype=kind).numpy()
    return array


@njit(nogil=True, inline="always")
def rounded(value: float) -> Any:
    """Return the nearest bfloat16, as a float32."""
    return widened(bfloat16(value))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def target_scores(h: Array, weight: Array, bias: Array, targets: Array, scores: Array) -> None:
    """Write log2(e) times the score of each target, from the same bfloat16 numbers as in the tiles; 0 for padding."""
    scores[:] = 0
    for e in range(len(h)):
        row, total = weight[targets[e]], np.float32(0)
        for d in range(h.shape[1]):
            total += rounded(h[e, d] * np.float32(LOG2_E)) * rounded(row[d])
        scores[e] = total + bias[targets[e]] * np.float32(LOG2_E)


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentials(
    configuration: Array,
    rows: Array,
    columns: Array,
    h_pairs: Array,
    bias: Array,
    reference: Array,
    stored: Array,
    grad_h: Array,
    total: Array,
    scores: Array,
    pairs: Array,
    first: int,
    last: int,
    block: int,
    near: int,
) -> None:
    """Make the first pass over the tiles of words from first to before last.

    stored: E in bfloat16, `[W, E, 32 words, 32 examples]`. grad_h: W' E, `[E, K, 4 tiles, 16, 16 examples]`. total:
    sums of E, `[B]`. block: tiles of words that stay near the processor. near: tiles of examples that do.
    """
    tiles.configure(configuration.ctypes.data)
    deep, along = rows.shape[1], len(reference) // 32
    of_depth = columns.shape[1] * PAIR  # bytes from one 32 of the depth to the next, in columns
    rows_at, columns_at, h_at = rows.ctypes.data, columns.ctypes.data, h_pairs.ctypes.data
    grad_at, scores_at, pairs_at = grad_h.ctypes.data, scores.ctypes.data, pairs.ctypes.data
    bias_at, reference_at, total_at = bias.ctypes.data, reference.ctypes.data, total.ctypes.data
    stored_at, stored_row = stored.ctypes.data, stored.shape[1] * PAIR
    grad_h[:] = 0
    total[:] = 0
    for begin in range(0, along, near):
        for top in range(first, last, block):
            height = min(block, last - top)
            for e in range(begin, min(begin + near, along)):
                for w in range(height):
                    left = rows_at + 2 * (top + w) * deep * tiles.TILE
                    tiles.clear()
                    right = h_at + e * deep * PAIR
                    tiles.add_products(left, deep * tiles.TILE, tiles.TILE, right, tiles.TILE, PAIR, deep)
                    tiles.write_sums(scores_at, 128, 64, 2048)
                    exponentials(  # type: ignore[call-arg]
                        scores_at,
                        bias_at + (top + w) * 128,
                        reference_at + e * 128,
                        total_at + e * 128,
                        stored_at + (top + w) * stored_row + e * PAIR,
                        pairs_at + w * PAIR,
                    )
                for d in range(deep):
                    place = grad_at + (e * deep + d) * 2 * PAIR
                    left = columns_at + d * of_depth + top * PAIR
                    tiles.read_sums(place, 64, tiles.TILE, PAIR)
                    tiles.add_products(left, tiles.TILE, PAIR, pairs_at, tiles.TILE, PAIR, height)
                    tiles.write_sums(place, 64, tiles.TILE, PAIR)
    tiles.release()


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _weight_gradient(
    configuration: Array,
    stored: Array,
    h_pairs: Array,
    share: Array,
    h: Array,
    targets: Array,
    batch: int,
    block: Array,
    grad_weight: Array,
    grad_bias: Array,
    first: int,
    last: int,
    keep: bool,
) -> None:
    """Make the second pass: gradients of W, E (share h) - onehot h / batch, and of b; keep: whether to add to them."""
    tiles.configure(configuration.ctypes.data)
    along, deep = len(share) // 32, len(h_pairs)
    words, dim = grad_weight.shape
    stored_at, stored_row = stored.ctypes.data, stored.shape[1] * PAIR
    h_at, block_at, grad_at = h_pairs.ctypes.data, block.ctypes.data, grad_weight.ctypes.data
    sums, h_row = np.empty(32, dtype=np.float32), h_pairs.shape[1] * PAIR
    for w in range(first, last):
        height = min(32, words - w * 32)
        for d in range(deep):
            whole = height == 32 and d * 32 + 32 <= dim
            place, row = (grad_at + (w * 32 * dim + d * 32) * 4, dim * 4) if whole else (block_at, 128)
            if whole and keep:
                tiles.read_sums(place, row, 64, 16 * row)
            else:
                tiles.clear()
            left = stored_at + w * stored_row
            tiles.add_products(left, tiles.TILE, PAIR, h_at + d * h_row, tiles.TILE, PAIR, along)
            tiles.write_sums(place, row, 64, 16 * row)
            if not whole:
                for i in range(height):
                    for j in range(min(32, dim - d * 32)):
                        before = grad_weight[w * 32 + i, d * 32 + j] if keep else np.float32(0)
                        grad_weight[w * 32 + i, d * 32 + j] = before + block[i, j]
        for i in range(height):
            sums[:] = 0
            for e in range(along):
                for j in range(32):
                    sums[j] += widened(stored[w, e, i, j]) * share[e * 32 + j]
            grad_bias[w * 32 + i] = (grad_bias[w * 32 + i] if keep else np.float32(0)) + sums.sum()
    tiles.release()
    least, most, each = first * 32, min(last * 32, words), np.float32(1 / batch)
    for e in range(len(h)):
        word = targets[e]
        if least <= word < most:
            grad_bias[word] -= each
            for j in range(dim):
                grad_weight[word, j] -= each * h[e, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _hidden_gradient(sum_h: Array, share: Array, weight: Array, targets: Array, batch: int, grad_h: Array) -> None:
    """Write the gradient of h, share (W' E) - W[y] / batch: `[B, D]` from W' E, `[E, K, 4, 16, 16]`."""
    each = np.float32(1 / batch)
    for e in range(len(grad_h)):
        row = weight[targets[e]]
        for d in range(grad_h.shape[1]):
            tile = d % 32 // 16 * 2 + e % 32 // 16
            grad_h[e, d] = sum_h[e // 32, d // 32, tile, d % 16, e % 16] * share[e] - each * row[d]
