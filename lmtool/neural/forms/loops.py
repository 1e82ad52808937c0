"""What the compiled loops of several forms share: which tensors they take, threads, rows that are used repeatedly, and
scalar functions.

A matrix has rows that a batch uses several times. Their gradients are summed once per row by first grouping the places
of equal rows: then each row's sum stays in the processor's cache, and no two threads write to the same row.

exp_below, tanh and error_function are without a branch or a call in float32, so that loops over them are vectorized:
math's are called for one number at a time, which takes five to ten times as long, and are used in float64, in which
gradients are checked. Numbers in bfloat16 are uint16 to compiled loops: widened when read, rounded when written.
tests/neural/test_fast_math.py compares both.

Legend of shapes: P places, U different rows among them, H dimension of a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload
from torch import Tensor

from lmtool.neural.forms import allowed
from lmtool.system import parallel
from lmtool.system.arrays import Array

# Sums may be taken in any order, so that they are vectorized; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
NUMBERS_PER_THREAD = 1 << 17  # numbers to read for which a second thread is worth its start
MIN_DIGIT_BITS, MAX_DIGIT_BITS = 8, 15  # bits of the digit that one pass of the radix sort goes by


def runs_compiled(tensor: Tensor) -> bool:
    """Return whether compiled loops can work on a tensor: on a CPU, in float32 or float64."""
    return tensor.is_cpu and tensor.dtype in (torch.float32, torch.float64)


def by_loops(tensor: Tensor) -> bool:
    """Return whether compiled loops are to work on a tensor: they can, and fast forms are allowed."""
    return allowed() and runs_compiled(tensor)


def as_arrays(*tensors: Tensor) -> list[Array]:
    """Return the memory of tensors on a CPU, for compiled loops."""
    return [tensor.detach().numpy() for tensor in tensors]


def over_segments(kernel: Any, arguments: Sequence[Any], starts: Array, width: int) -> None:
    """Run a kernel over segments, places starts[k] to before starts[k + 1], on several threads if there is enough work.

    Each thread gets the same number of places. width: numbers read for each place.
    """
    last, total = len(starts) - 1, int(starts[-1])
    pieces = min(parallel.threads(), total * width // NUMBERS_PER_THREAD)
    if pieces <= 1:
        kernel(*arguments, 0, last)
        return
    cuts = np.searchsorted(starts, np.arange(1, pieces) * (total // pieces)).tolist()
    ends = [0, *cuts, last]
    parallel.run((kernel, *arguments, ends[k], ends[k + 1]) for k in range(pieces))


@njit(nogil=True, forceinline=True)
def copy_row(source: Array, target: Array) -> None:
    """Set target[j] = source[j] for all j of `target`.

    A slice assignment would make numba compile its error message for unequal lengths: seconds in each function.
    """
    for j in range(len(target)):
        target[j] = source[j]


class Groups:
    """The places of equal rows, side by side.

    unique: `[U]`, the different rows, ascending. order: `[P]`, the places of all rows; the places of unique[u] are
    order[starts[u]] to before order[starts[u + 1]].
    """

    def __init__(self, rows: Tensor) -> None:
        array = rows.detach().numpy()
        self.order = np.empty(len(array), dtype=np.int32)
        self.unique, self.starts = sort_rows(array, self.order)

    def places(self) -> Array:
        """Return the index of each row among the different rows, `[P]`, so that unique[places] are the rows."""
        places = np.empty(len(self.order), dtype=np.int32)
        places[self.order] = np.repeat(np.arange(len(self.unique), dtype=np.int32), np.diff(self.starts))
        return places

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of the values `[P, H]` of each of the different rows, `[U, H]`."""
        sums = values.new_empty(len(self.unique), values.shape[1])
        arrays = values.numpy(), self.order, self.starts, sums.numpy()
        over_segments(sum_rows, arrays, self.starts, values.shape[1])
        return sums


def rows_gradient(unique: Tensor, values: Tensor, shape: torch.Size, sparse: bool) -> Tensor:
    """Return the gradient of a matrix of this shape: values `[U, H]` in its rows `unique` `[U]`, 0 in all others."""
    if not sparse:
        return values.new_zeros(shape).index_copy_(0, unique, values)
    return torch.sparse_coo_tensor(unique[None], values, shape, is_coalesced=True, check_invariants=False)


def coalesce(gradient: Tensor) -> Tensor:
    """Return a sparse gradient with distinct, ascending rows: for a dense gradient, the rows that are not 0.

    Compiled loops are up to 1.8 times as fast as torch. Autograd passes gradients on without the note that their
    rows are so already: checking is faster than sorting again.
    """
    if not gradient.is_sparse:  # from DistributedDataParallel, or for a weight from which others are computed
        rows = gradient.reshape(len(gradient), -1).any(1).nonzero()[:, 0]
        return rows_gradient(rows, gradient[rows], gradient.shape, sparse=True)
    if gradient.is_coalesced() or not by_loops(gradient):
        return gradient.coalesce()
    (rows,), values = gradient._indices(), gradient._values()  # the documented access to uncoalesced gradients
    if not ascending(rows.numpy()):
        groups = Groups(rows)
        rows, sums = torch.from_numpy(groups.unique), groups.sums(values.reshape(len(values), -1).contiguous())
        values = sums.view(len(rows), *values.shape[1:])
    return rows_gradient(rows, values, gradient.shape, sparse=True)


@njit(cache=True, nogil=True)
def sort_rows(rows: Array, order: Array) -> tuple[Array, Array]:
    """Group equal rows: return the different ones, ascending, `[U]`, and where each begins in `order`, `[U + 1]`.

    order `[P]` is filled with the places of rows `[P]`, equal rows together, in their order. A radix
    sort, since ids are small: two or three passes, where np.unique compares P log P times and returns no groups. Plain
    form: np.unique and a stable argsort; tests/neural/test_rows.py compares both.
    """
    size = len(rows)
    keys: Array = np.empty(size, dtype=np.int64)
    other_keys: Array = np.empty(size, dtype=np.int64)
    places, other_places = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    for k in range(size):  # np.arange would take a second to compile
        keys[k], places[k] = rows[k], k
    largest, bits, digit_bits = np.int64(0), 1, MIN_DIGIT_BITS
    for key in keys:
        largest = max(largest, key)
    while largest >> bits:
        bits += 1
    # The table of counts may be some times as long as the list of rows: fewer passes are faster.
    while digit_bits < MAX_DIGIT_BITS and size >> (digit_bits - 1):
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
    for k in range(size):  # equal rows now lie side by side: each change begins a group
        order[k] = places[k]
        if k == 0 or keys[k] != keys[k - 1]:
            unique[groups] = keys[k]
            starts[groups] = k
            groups += 1
    starts[groups] = size
    return unique[:groups].copy(), starts[: groups + 1].copy()


@njit(cache=True, nogil=True)
def ascending(rows: Array) -> bool:
    """Return whether each row is above the one before it."""
    wrong = 0
    for k in range(1, len(rows)):
        wrong += rows[k] <= rows[k - 1]
    return wrong == 0


@njit(cache=True, nogil=True)
def sum_rows(values: Array, order: Array, starts: Array, sums: Array, first: int, last: int) -> None:
    """Compute sums[u] = sum of values[order[k]] over the places k of group u: `[U, H]` from `[P, H]`."""
    for u in range(first, last):
        total = sums[u]
        copy_row(values[np.uint32(order[starts[u]])], total)
        for k in range(starts[u] + 1, starts[u + 1]):
            row = values[np.uint32(order[k])]
            for j in range(len(total)):
                total[j] += row[j]


@njit(nogil=True, inline="always")
def bfloat16(value: float) -> Any:
    """Return the bits of the nearest bfloat16 (ties to even), in the lower half of an int32."""
    bits: Any = np.float32(value).view(np.int32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded if value == value else 0x7FC0  # a carry could turn NaN into a number


@njit(nogil=True, inline="always")
def widen_bfloat16(bits: int) -> Any:
    """Return the float32 of the bits of a bfloat16."""
    return np.int32(np.int32(bits) << np.int32(16)).view(np.float32)


def exp_below(x: Any) -> Any:
    """Return exp(x) of x <= 0; in float32 with a relative error below 3e-7.

    Below -87 the result is e^-87, 1.6e-38, which is negligible when added to 1.
    """
    return math.exp(x)


@overload(exp_below, jit_options={"error_model": "numpy"})
def _exp_below(x: Any) -> Any:
    def single(x: Any) -> Any:
        # 2^k exp(r) with |r| <= log(2) / 2, exp(r) by its series.
        x = np.float32(-87.0) if x < np.float32(-87.0) else x  # NaN passes through
        k = np.int32(x * np.float32(1.4426950408889634) - np.float32(0.5))
        whole = np.float32(k)
        r = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440054690583e-4)
        series = np.float32(1 / 720)
        series = series * r + np.float32(1 / 120)
        series = series * r + np.float32(1 / 24)
        series = series * r + np.float32(1 / 6)
        series = series * r + np.float32(0.5)
        series = series * r + np.float32(1.0)
        series = series * r + np.float32(1.0)
        return series * np.int32(np.int32(k + np.int32(127)) << np.int32(23)).view(np.float32)

    return single if x == types.float32 else exp_below


def tanh(x: Any) -> Any:
    """Return tanh(x); in float32 with an error below 2e-7."""
    return math.tanh(x)


@overload(tanh, jit_options={"error_model": "numpy"})
def _tanh(x: Any) -> Any:
    def single(x: Any) -> Any:
        e = exp_below(np.float32(-2.0) * abs(x))
        t = (np.float32(1.0) - e) / (np.float32(1.0) + e)
        return t if x >= np.float32(0.0) else -t

    return single if x == types.float32 else tanh


def error_function(x: Any) -> Any:
    """Return erf(x); in float32 with an error below 5e-7 (Abramowitz & Stegun 1964, 7.1.26)."""
    return math.erf(x)


@overload(error_function, jit_options={"error_model": "numpy"})
def _error_function(x: Any) -> Any:
    def single(x: Any) -> Any:
        size = abs(x)
        t = np.float32(1.0) / (np.float32(1.0) + np.float32(0.3275911) * size)
        series = np.float32(1.061405429)
        series = series * t + np.float32(-1.453152027)
        series = series * t + np.float32(1.421413741)
        series = series * t + np.float32(-0.284496736)
        series = series * t + np.float32(0.254829592)
        rest = np.float32(1.0) - series * t * exp_below(-size * size)
        return rest if x >= np.float32(0.0) else -rest

    return single if x == types.float32 else error_function
