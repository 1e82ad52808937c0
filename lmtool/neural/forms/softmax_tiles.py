"""The full softmax with its gradients by products of tiles in bfloat16 (forms.tiles): the two passes of
forms.softmax_bf16, whose names these are. tests/neural/test_softmax.py compares it with FullSoftmax.loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit

from lmtool.neural.forms import tiles
from lmtool.neural.forms.loops import FAST, bfloat16
from lmtool.neural.forms.softmax_bf16 import PAIR, Bf16Softmax, add_rows, loss_by, memory
from lmtool.neural.forms.softmax_chunks import bf16_form, in_bf16
from lmtool.neural.forms.tiles import exponentials
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel
from lmtool.system.arrays import Array

BLOCK_NUMBERS = 1 << 17  # numbers of W in a block of words
NEAR_NUMBERS = 1 << 18  # numbers of h that pass for each block of words


def _serves(layer: FullSoftmax, h: torch.Tensor) -> bool:
    return tiles.fit(h) and in_bf16(layer, h)


@bf16_form(
    serves=_serves,
    measured="2.7 to 3.9 times fp32, 1.2 to 2.8 autocast (.86 at batch 32: not chosen); Sapphire Rapids, 2026-11",
)
def softmax_tiles(layer: FullSoftmax, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute the loss with its gradients by tiles; if exponentials overflow, in float32."""
    return loss_by(TileSoftmax, layer, h, y)


class TileSoftmax(Bf16Softmax):
    """The passes by tiles, and the memory that they need."""

    def __init__(self, words: int, dim: int, examples: int) -> None:
        """words: O. dim: D. examples: the maximum of B. Raises ValueError if the processor has no tiles."""
        if not tiles.available():  # requests them: without that they are illegal instructions
            raise ValueError("TileSoftmax: this processor has no tiles for bfloat16")
        super().__init__(words, dim, examples)
        across, along, deep = -(-words // 32), -(-examples // 32), -(-dim // 32)
        self._block = max(1, min(16, BLOCK_NUMBERS // (dim * 32)))
        self._near = max(1, NEAR_NUMBERS // (dim * 32))
        self._weight = memory(across * 2, deep, 16, 32, kind=torch.uint16)
        self._weight_columns = memory(deep, across, 32, 32, kind=torch.uint16)
        pieces = len(self._cuts)
        self._tile_sums = memory(pieces, along, deep, 2, 2, 16, 16)
        self._scores, self._pairs = memory(pieces, 32, 32), memory(pieces, self._block, 2, 16, 16)
        self._grad = memory(pieces, 32, len(self._example_pairs) * 32)
        self._configuration = tiles.configuration()

    def _first_pass(self, weight: Array) -> None:
        parallel.run((_pack_weight, weight, self._weight, self._weight_columns, *cut) for cut in self._cuts)
        arrays = self._configuration, self._weight, self._weight_columns, self._h_pairs, self._bias, self._reference
        parts = zip(self._tile_sums, self._totals, self._scores, self._pairs, self._cuts, strict=True)
        sizes = self._block, self._near
        parallel.run((_exponentials, arrays, self._powers, tuple(own), sizes, *cut) for *own, cut in parts)
        self._sums = self._tile_sums.transpose(0, 1, 2, 3, 5, 4, 6).reshape(*self._tile_sums.shape[:2], -1, 32)

    def _second_pass(self, *arguments: Any) -> None:
        arrays = self._configuration, self._powers, self._example_pairs
        parts = zip(self._grad, self._cuts, strict=True)
        parallel.run((_weight_gradient, arrays, grad, arguments, *cut) for grad, cut in parts)


@njit(cache=True, nogil=True, error_model="numpy")
def _pack_weight(weight: Array, rows: Array, columns: Array, first: int, last: int) -> None:
    """Write W `[O, D]` in bfloat16 to rows, `[2 W, K, 16 words, 32]`, and columns, `[K, W, 32, 32 words]`."""
    words, dim = weight.shape
    block = np.zeros((32, 32), dtype=np.uint16)
    for w in range(first, last):
        height = min(32, words - w * 32)
        for k in range(rows.shape[1]):
            width = min(32, dim - k * 32)
            for i in range(height):
                row = weight[w * 32 + i]
                if width == 32:  # a loop of known length is vectorized
                    for j in range(32):
                        block[i, j] = bfloat16(row[k * 32 + j])
                else:
                    for j in range(width):
                        block[i, j] = bfloat16(row[k * 32 + j])
            for i in range(height, 32):
                for j in range(32):
                    block[i, j] = 0
            rows[2 * w, k] = block[:16]
            rows[2 * w + 1, k] = block[16:]
            for j in range(32):
                for i in range(32):
                    columns[k, w, j, i] = block[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentials(inputs: Any, stored: Array, own: Any, sizes: Any, first: int, last: int) -> None:
    """Make the first pass over the tiles of words from first to before last.

    stored: E in bfloat16, `[W, E, 32 words, 32 examples]`. grad_h: W' E, `[E, K, 2, 2, 16, 16 examples]`. total:
    sums of E, `[B]`. block: tiles of words that stay near the processor. near: tiles of examples that do.
    """
    (configuration, rows, columns, h_pairs, bias, reference), (grad_h, total, scores, pairs) = inputs, own
    block, near = sizes
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
def _weight_gradient(inputs: Any, sums: Array, of_weight: Any, first: int, last: int) -> None:
    """Make the second pass; sums: memory for gradients of 32 words. of_weight: arguments of add_rows."""
    (configuration, stored, h_pairs), (weight, bias, keep, change) = inputs, of_weight
    tiles.configure(configuration.ctypes.data)
    deep, along = h_pairs.shape[:2]
    stored_at, h_at, sums_at, row = stored.ctypes.data, h_pairs.ctypes.data, sums.ctypes.data, deep * 128
    for w in range(first, last):
        for d in range(deep):
            tiles.clear()
            left, right = stored_at + w * along * PAIR, h_at + d * along * PAIR
            tiles.add_products(left, tiles.TILE, PAIR, right, tiles.TILE, PAIR, along)
            tiles.write_sums(sums_at + d * 128, row, 64, 16 * row)
        add_rows(sums, weight, bias, keep, change, w * 32)
    tiles.release()
