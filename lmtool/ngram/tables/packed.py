"""Whole numbers in as few bits as the largest of them needs; and what compiled loops that read them need.

In a model of 40 million n-grams, most bytes would be leading zeros of small numbers. Number i takes `width` bits from
bit i x width on, lowest first, of an array of 64-bit cells with two spare cells at its end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import Array, IntArray
from lmtool.system.parallel import cut_evenly, run

T = TypeVar("T")
CELL = 64  # bits
_null: Any = cgutils.get_null_value
_I32, _BYTES = ir.IntType(32), ir.IntType(8).as_pointer()
MIN_NUMBERS_FOR_THREADS = 1 << 14  # fewer are packed by one thread


@numba.njit(cache=True, nogil=True, forceinline=True)
def read_bits(bits: Any, at: Any, width: int) -> Any:
    """Return the number in `width` bits from bit `at` on, as int64.

    The plain form would ask whether the number ends in the next cell; here both cells are read without a branch.
    """
    cell = at >> np.uint64(6)
    shift = at & np.uint64(63)
    low = bits[cell] >> shift
    high = (bits[cell + np.uint64(1)] << np.uint64(1)) << (np.uint64(63) - shift)
    return np.int64((low | high) & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))


@numba.njit(cache=True, nogil=True, forceinline=True)
def read(bits: Any, width: int, index: int) -> Any:
    return read_bits(bits, np.uint64(index) * np.uint64(width), width)


@numba.njit(cache=True, nogil=True, forceinline=True)
def read_short(halves: Any, width: int, index: int) -> Any:
    """Return what `read` does, in one step less, for a width of up to 33; halves: the same bits as uint32."""
    at = np.uint64(index) * np.uint64(width)
    half = at >> np.uint64(5)
    both = np.uint64(halves[half]) | (np.uint64(halves[half + np.uint64(1)]) << np.uint64(32))
    return np.int64((both >> (at & np.uint64(31))) & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))


@numba.njit(cache=True, nogil=True)
def _pack(values: Any, bits: Any, width: int, start: int) -> None:
    # A cell that two pieces share is changed with `or`, not atomically: such pieces must be packed one at a time.
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(values)):
        at = (start + i) * width
        cell = at >> 6
        shift = np.uint64(at & 63)
        value = np.uint64(values[i]) & mask
        bits[cell] |= value << shift
        if (at & 63) + width > 64:
            bits[cell + 1] |= value >> (np.uint64(64) - shift)


@numba.njit(cache=True, nogil=True)
def _unpack(bits: Any, width: int, first: int, values: Any) -> None:
    for i in range(len(values)):
        values[i] = read(bits, width, first + i)


@numba.njit(cache=True, nogil=True)
def _read_at(bits: Any, width: int, index: Any, values: Any) -> None:
    for i in range(len(index)):
        values[i] = read(bits, width, index[i])


@dataclass(frozen=True, slots=True)
class Packed:
    """`length` numbers from 0 to below 2^width (width from 1 to 63) in `bits`, uint64."""

    bits: Array
    width: int
    length: int

    @classmethod
    def zeros(cls, length: int, largest: int, storage: Storage | None = None) -> Packed:
        """Return `length` zeros, of the width of `largest`; in memory if storage is None."""
        width = width_of(largest)
        return cls((storage or Storage()).zeros(cells_needed(length, width), np.uint64), width, length)

    @classmethod
    def of(cls, values: Array, largest: int | None = None, storage: Storage | None = None) -> Packed:
        """Pack an array of whole numbers, 0 or more, of the width of `largest` or of the largest value."""
        storage = storage or Storage()
        if largest is None:
            largest = max((int(values[a:b].max()) for a, b in storage.pieces(len(values))), default=0)
        packed = cls.zeros(len(values), largest, storage)
        for first, last in storage.pieces(len(values)):
            packed.put(first, values[first:last])
        return packed

    def put(self, start: int, values: Array) -> None:
        """Write the lowest bits of values from number `start` on; all numbers there must be 0."""
        if len(values) < MIN_NUMBERS_FOR_THREADS:
            _pack(values, self.bits, self.width, start)
            return
        # Each thread's numbers begin a cell: CELL of them fill `width` cells.
        inner = [(start + at) // CELL * CELL - start for at, _ in cut_evenly(len(values))[1:]]
        ends = [0, *(at for at in inner if at > 0), len(values)]
        run(
            (_pack, values[first:last], self.bits, self.width, start + first)
            for first, last in itertools.pairwise(ends)
            if first < last
        )

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: slice | IntArray) -> IntArray:
        """Return the numbers of a range, or those at indices `[M]`."""
        if isinstance(key, slice):
            first, last, _ = key.indices(self.length)
            values = np.empty(max(last - first, 0), dtype=np.int64)
            _unpack(self.bits, self.width, first, values)
        else:
            values = np.empty(len(key), dtype=np.int64)
            _read_at(self.bits, self.width, key, values)
        return values

    def largest(self) -> int:
        return (1 << self.width) - 1


def width_of(largest: int) -> int:
    """Return the number of bits of numbers up to `largest`, at least 1."""
    return max(int(largest).bit_length(), 1)


def cells_needed(length: int, width: int) -> int:
    """Return the number of 64-bit cells for `length` numbers and two spare ones, into which `read` may look."""
    return (length * width + CELL - 1) // CELL + 2


def interpret(generator: Any, *values: Any) -> Any:
    """Call the function that `overload` would choose by the types of its arguments, for NUMBA_DISABLE_JIT."""
    return generator(*map(numba.typeof, values))(*values)


def borrow(arrays: T) -> T:
    """Return a NamedTuple of arrays, and of such tuples, whose references compiled code does not count.

    Without it, each access to an array of a tuple raises the array's reference count and lowers it again, atomically:
    twice the time of a search in the trie, and threads wait for each other. A kernel calls it first; the caller holds
    the arrays while it runs, and none of them may be returned. What is handed on to functions with forceinline costs
    nothing then, so that a table is one argument.
    """
    return arrays


def without_owners(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return LLVM's value of a tuple or an array, of Numba's type `kind`, with null for the owner that is counted."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value=value)
        array.meminfo, array.parent = _null(array.meminfo.type), _null(array.parent.type)
        return array._getvalue()
    parts: Any = kind if isinstance(kind, types.BaseTuple) else ()
    for i, part in enumerate(parts):
        inner = without_owners(context, builder, part, builder.extract_value(value, i))
        value = builder.insert_value(value, inner, i)
    return value


def _generate(_typing: Any, arrays: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return without_owners(context, builder, signature.args[0], values[0])

    return arrays(arrays), generate


_without_owners: Any = intrinsic(_generate)


def prefetch(array: Any, index: Any) -> None:
    """Begin to read an element of an array in C order into the cache, in compiled code; no-op if it is not an array."""


def _generate_prefetch(_typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if isinstance(array, types.Array):
            data = context.make_array(array)(context, builder, value=values[0]).data
            pointer = builder.bitcast(builder.gep(data, [values[1]]), _BYTES)
            kind = ir.FunctionType(ir.VoidType(), [_BYTES, _I32, _I32, _I32])
            function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTES], kind)
            builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])  # to read, into all levels, data
        return context.get_dummy_value()

    return types.void(array, index), generate


_prefetch: Any = intrinsic(_generate_prefetch)


@overload(prefetch)
def _prefetched(array: Any, index: Any) -> Any:
    def generate(array: Any, index: Any) -> Any:
        return _prefetch(array, index)

    return generate


@overload(borrow)
def _borrow(arrays: Any) -> Any:
    def strip(arrays: Any) -> Any:
        return _without_owners(arrays)

    return strip
