"""Tile registers of a processor with AMX, as functions that compiled loops can call (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 1, chapter 18); and products of tiles without them, by AVX-512.

A tile is 16 rows of 64 bytes: 16 x 16 float32, or 16 x 32 bfloat16. There are eight: 0 to 3 hold sums, 4 and 5 two
tiles of the left matrix, 6 and 7 two of the right one; a multiplication adds the product of 16 x 32 and 32 x 16 numbers
in bfloat16 to sums in float32. The right matrix has the numbers of rows 2k and 2k + 1 side by side, as pairs.

Matrices lie in memory tile after tile, so that a tile is 1,024 consecutive bytes. A thread configures the tiles before
it uses them and releases them at the end.

Vector code on blocks of 32 x 32 numbers between two products is written instruction by instruction: a compiler makes
several passes of each of these, which take seven times as long. The packing functions write the matrices of
forms.softmax_tiles and softmax_bf16, tile after tile.
"""

from __future__ import annotations

import ctypes
import functools
import math
import platform
from typing import Any

import llvmlite.binding
import numpy as np
import torch
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from lmtool.neural.forms.loops import bfloat16
from lmtool.system.arrays import Array

TILE = 1024  # bytes of a tile
SIDE = 16  # rows of a tile, and numbers in a row of float32
ROWS = 8  # rows of a matrix that add_dots multiplies: 16 vectors of sums, enough to hide an instruction's latency

BYTE, WORD = ir.IntType(8), ir.IntType(64)
ADDRESS = BYTE.as_pointer()
# Linux gives a process tile registers when it asks for them (arch_prctl(2)).
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18
LOG2_E = math.log2(math.e)
FLOAT, HALF, INTEGER = ir.FloatType(), ir.IntType(16), ir.IntType(32)
FLOATS, HALVES, INTEGERS = (ir.VectorType(kind, 16) for kind in (FLOAT, HALF, INTEGER))
# 2^x on [-1/2, 1/2], relative error below 2.6e-6: far below that of bfloat16, 3.9e-3.
POWER_OF_TWO = (0.99999926, 0.69312182, 0.24024746, 0.05591786, 0.00957007)
LARGEST_EXPONENT = 126.0
ROUND = 12582912.0  # 1.5 * 2^23: adding it to a float32 removes the fraction


@functools.cache
def available() -> bool:
    """Return whether this process may use tiles for products in bfloat16: on Linux, on a processor with AMX."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    if not _compiles_with("amx-tile", "amx-bf16", "avx512f", "avx512bw", "avx512vl"):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)


@functools.cache
def has_dots() -> bool:
    """Return whether this processor has the instruction of `add_dots`."""
    return platform.machine().lower() in ("x86_64", "amd64") and _compiles_with("avx512bf16")


def _compiles_with(*features: str) -> bool:
    """Return whether this processor has these features, and Numba compiles for it: if NUMBA_CPU_NAME or
    NUMBA_CPU_FEATURES names another one, LLVM would end the process at an instruction that is not among its own.
    """
    here = llvmlite.binding.get_host_cpu_features()
    is_for_another = any(getattr(config, name, None) is not None for name in ("CPU_NAME", "CPU_FEATURES"))
    return not is_for_another and all(here.get(name, False) for name in features)


def fit(tensor: torch.Tensor) -> bool:
    """Return whether tiles can multiply the numbers of a tensor: float32, on a CPU with AMX."""
    return tensor.is_cpu and tensor.dtype == torch.float32 and available()


def configuration() -> Array:
    """Return the configuration that `configure` loads: all eight tiles of full size, uint8 `[64]`."""
    full = np.zeros(64, dtype=np.uint8)
    full[0] = 1  # the palette
    full.view(np.uint16)[8:16] = 64  # bytes in a row
    full[48:56] = SIDE
    return full


def _instruction(name: str, tiles: tuple[int, ...], addresses: int, numbers: int) -> Any:
    """Return the function of an instruction on these tiles; its arguments are addresses, then numbers, all int64."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = [BYTE] * len(tiles) + [ADDRESS] * addresses + [WORD] * numbers
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(ir.VoidType(), kinds), name
        )
        pointers = [builder.inttoptr(argument, ADDRESS) for argument in arguments[:addresses]]
        constants = [ir.Constant(BYTE, tile) for tile in tiles]
        builder.call(function, [*constants, *pointers, *arguments[addresses:]])
        return context.get_dummy_value()

    returned = types.void(*[types.int64] * (addresses + numbers)), build
    by_count = lambda typing: returned, lambda typing, a: returned, lambda typing, a, b: returned
    return intrinsic(by_count[addresses + numbers])


configure = _instruction("llvm.x86.ldtilecfg", (), 1, 0)  # (address of the configuration)
release = _instruction("llvm.x86.tilerelease", (), 0, 0)
# (address, bytes from one row to the next)
_load0, _load1, _load2, _load3, _load4, _load5, _load6, _load7 = (
    _instruction("llvm.x86.tileloadd64", (tile,), 1, 1) for tile in range(8)
)
_store0, _store1, _store2, _store3 = (_instruction("llvm.x86.tilestored64", (tile,), 1, 1) for tile in range(4))
_zero0, _zero1, _zero2, _zero3 = (_instruction("llvm.x86.tilezero", (tile,), 0, 0) for tile in range(4))
_add0, _add1, _add2, _add3 = (  # (sums, left, right)
    _instruction("llvm.x86.tdpbf16ps", tiles, 0, 0) for tiles in ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7))
)


@njit(nogil=True, inline="always")
def clear() -> None:
    """Set the sums to 0."""
    _zero0()
    _zero1()
    _zero2()
    _zero3()


@njit(nogil=True, inline="always")
def add_products(
    left: int, left_below: int, left_step: int, right: int, right_beside: int, right_step: int, steps: int
) -> None:
    """Add the product of 32 rows of the left matrix and 32 columns of the right one to the sums, over 32 * steps terms.

    left, right: addresses of the first tiles. left_below, right_beside: bytes from them to the second ones. left_step,
    right_step: bytes to the next 32 terms.
    """
    for _ in range(steps):
        _load4(left, 64)
        _load5(left + left_below, 64)
        _load6(right, 64)
        _load7(right + right_beside, 64)
        _add0()
        _add1()
        _add2()
        _add3()
        left += left_step
        right += right_step


@njit(nogil=True, inline="always")
def read_sums(place: int, row: int, beside: int, below: int) -> None:
    """Read the sums of 32 x 32 numbers in float32.

    row: bytes from one row to the next. beside, below: bytes to the tiles to the right and below.
    """
    _load0(place, row)
    _load1(place + beside, row)
    _load2(place + below, row)
    _load3(place + below + beside, row)


@njit(nogil=True, inline="always")
def write_sums(place: int, row: int, beside: int, below: int) -> None:
    """Write the sums; the arguments are the same as for read_sums."""
    _store0(place, row)
    _store1(place + beside, row)
    _store2(place + below, row)
    _store3(place + below + beside, row)


def _same(value: float, kind: Any = FLOATS) -> Any:
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * 16)


def _spread(builder: Any, value: Any, kind: Any = FLOATS) -> Any:
    """Return a vector that repeats one number."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(INTEGER, 0))
    return builder.shuffle_vector(first, undefined, _same(0, INTEGERS))


def _power_of_two(builder: Any, exponent: Any) -> Any:
    """Return 2^exponent, with the exponent limited to +-126; NaN remains NaN if the last 9 of its bits are 0."""
    low, high = _same(-LARGEST_EXPONENT), _same(LARGEST_EXPONENT)
    exponent = builder.select(builder.fcmp_ordered("<", exponent, low), low, exponent)  # NaN passes through
    exponent = builder.select(builder.fcmp_ordered(">", exponent, high), high, exponent)
    shifted = builder.fadd(exponent, _same(ROUND))
    whole = builder.shl(builder.bitcast(shifted, INTEGERS), _same(23, INTEGERS))
    rest = builder.fsub(exponent, builder.fsub(shifted, _same(ROUND)))
    *lower, power = (_same(coefficient) for coefficient in POWER_OF_TWO)
    for coefficient in reversed(lower):
        power = builder.fadd(builder.fmul(power, rest, flags=("contract",)), coefficient, flags=("contract",))
    return builder.bitcast(builder.add(builder.bitcast(power, INTEGERS), whole), FLOATS)


def _round(builder: Any, values: Any) -> Any:
    """Return the bits of the nearest bfloat16 (ties to even) in the upper halves; the lower halves are undefined."""
    bits = builder.bitcast(values, INTEGERS)
    odd = builder.and_(builder.lshr(bits, _same(16, INTEGERS)), _same(1, INTEGERS))
    return builder.add(builder.add(bits, _same(0x7FFF, INTEGERS)), odd)


def _pointer(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _number(value: int) -> Any:
    return ir.Constant(WORD, value)


@intrinsic
def exponentials(typing: Any, scores: Any, bias: Any, reference: Any, total: Any, rows: Any, pairs: Any) -> Any:
    """Compute 2^(s + bias - reference) of a block of scores `[32 words, 32 examples]`, in bfloat16, and sums over
    words.

    All arguments are addresses.
    scores: float32.
    bias: `[32]`, of the words.
    reference: `[32]`, of the examples.
    total: `[32]`, the sums are added to it.
    rows: the block as two tiles of a left matrix, `[32 words, 32 examples]`.
    pairs: the same as two tiles of a right one, `[2, 16 pairs of words, 16 examples, 2]`.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, bias, reference, total, rows, pairs = arguments
        halves = range(2)  # halves of the examples
        references = [builder.load(_pointer(builder, reference, _number(64 * h), FLOATS), align=4) for h in halves]
        sums = [cgutils.alloca_once(builder, FLOATS) for _ in halves]  # type: ignore[no-untyped-call]
        for h in halves:
            builder.store(builder.load(_pointer(builder, total, _number(64 * h), FLOATS), align=4), sums[h])
        with cgutils.for_range(builder, _number(16)) as loop:
            pair = loop.index
            of_words = builder.mul(pair, _number(8))
            biases = [
                _spread(builder, builder.load(_pointer(builder, bias, builder.add(of_words, _number(4 * k)), FLOAT)))
                for k in range(2)
            ]
            for h in halves:
                powers = []
                for k in range(2):
                    place = builder.add(builder.mul(pair, _number(256)), _number(128 * k + 64 * h))
                    score = builder.load(_pointer(builder, scores, place, FLOATS), align=4)
                    powers.append(_power_of_two(builder, builder.fadd(score, builder.fsub(biases[k], references[h]))))
                builder.store(builder.fadd(builder.load(sums[h]), builder.fadd(*powers)), sums[h])
                bits = [_round(builder, power) for power in powers]
                upper = [builder.lshr(value, _same(16, INTEGERS)) for value in bits]
                for k in range(2):
                    place = builder.add(builder.mul(pair, _number(128)), _number(64 * k + 32 * h))
                    builder.store(builder.trunc(upper[k], HALVES), _pointer(builder, rows, place, HALVES), align=2)
                both = builder.or_(upper[0], builder.and_(bits[1], _same(-65536, INTEGERS)))
                place = builder.add(builder.mul(pair, _number(64)), _number(1024 * h))
                builder.store(both, _pointer(builder, pairs, place, INTEGERS), align=4)
        for h in halves:
            builder.store(builder.load(sums[h]), _pointer(builder, total, _number(64 * h), FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), build


@intrinsic
def add_dots(
    typing: Any, sums: Any, sums_row: Any, left: Any, left_row: Any, left_pair: Any, left_tile: Any, right: Any,
    pairs: Any,
) -> Any:  # fmt: skip
    """Add the product of 8 rows of the left matrix and 32 columns of the right one to sums in float32, by dot products
    of pairs, of which AVX-512 adds 16 to 16 sums in one instruction.

    All arguments are int64.
    sums, left, right: addresses.
    sums_row, left_row: bytes from one row to the next.
    left_pair, left_tile: bytes to the next pair of terms and to the next 16 pairs.
    right: two tiles side by side for each 16 pairs.
    pairs: number of pairs of terms.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, sums_row, left, left_row, left_pair, left_tile, right, pairs = arguments
        of_type = ir.FunctionType(FLOATS, [FLOATS, INTEGERS, INTEGERS])
        dot = cgutils.get_or_insert_function(builder.module, of_type, "llvm.x86.avx512bf16.dpbf16ps.512")  # type: ignore[no-untyped-call]
        cells = []  # 16 registers
        for r in range(ROWS):
            for h in range(2):
                row = builder.add(sums, builder.mul(sums_row, _number(r)))
                place = _pointer(builder, row, _number(64 * h), FLOATS)
                cells.append((r, h, place, cgutils.alloca_once(builder, FLOATS)))  # type: ignore[no-untyped-call]
                builder.store(builder.load(place, align=4), cells[-1][-1])
        with cgutils.for_range(builder, pairs) as loop:
            tile, pair = builder.lshr(loop.index, _number(4)), builder.and_(loop.index, _number(15))
            at = builder.add(right, builder.add(builder.mul(tile, _number(2 * TILE)), builder.mul(pair, _number(64))))
            columns = [builder.load(_pointer(builder, at, _number(TILE * h), INTEGERS), align=4) for h in range(2)]
            at = builder.add(left, builder.add(builder.mul(tile, left_tile), builder.mul(pair, left_pair)))
            for r, h, _, cell in cells:
                one = builder.load(_pointer(builder, at, builder.mul(left_row, _number(r)), INTEGER), align=4)
                product = builder.call(dot, [builder.load(cell), _spread(builder, one, INTEGERS), columns[h]])
                builder.store(product, cell)
        for _, _, place, cell in cells:
            builder.store(builder.load(cell), place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), build


@njit(cache=True, nogil=True, forceinline=True, error_model="numpy")
def pack_depth(h: Array, pairs: Array) -> None:
    """Write log2(e) h `[B, D]` in bfloat16, the right matrix of products over D: `[E, K, 32 pairs, 16 examples 2]`."""
    pairs[:] = 0
    for e in range(len(h)):
        for d in range(h.shape[1]):
            row = e % 32 // 16 * 16 + d % 32 // 2
            pairs[e // 32, d // 32, row, e % 16 * 2 + d % 2] = bfloat16(h[e, d] * np.float32(LOG2_E))


@njit(cache=True, nogil=True, forceinline=True, error_model="numpy")
def pack_examples(h: Array, share: Array, pairs: Array) -> None:
    """Write share h `[B, D]` in bfloat16, the right matrix of products over B: `[K, E, 32 pairs, 16 2 examples]`."""
    pairs[:] = 0
    for e in range(len(h)):
        for d in range(h.shape[1]):
            row = d % 32 // 16 * 16 + e % 32 // 2
            pairs[d // 32, e // 32, row, d % 16 * 2 + e % 2] = bfloat16(h[e, d] * share[e])
