"""Tile registers of a processor with AMX, as functions that compiled loops can call (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 1, chapter 18).

A tile is 16 rows of 64 bytes: 16 x 16 float32, or 16 x 32 bfloat16. There are eight: 0 to 3 hold sums, 4 and 5 two
tiles of the left matrix, 6 and 7 two of the right one; a multiplication adds the product of 16 x 32 and 32 x 16 numbers
in bfloat16 to sums in float32. The right matrix has the numbers of rows 2k and 2k + 1 side by side, as pairs.

Matrices lie in memory tile after tile, so that a tile is 1,024 consecutive bytes. A thread configures the tiles before
it uses them and releases them at the end.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from typing import Any

import llvmlite.binding
import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

TILE = 1024  # bytes of a tile
SIDE = 16  # rows of a tile, and numbers in a row of float32
DEPTH = 32  # numbers in a row of bfloat16

BYTE, WORD = ir.IntType(8), ir.IntType(64)
ADDRESS = BYTE.as_pointer()
# Linux gives a process tile registers when it asks for them (arch_prctl(2)).
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18


@functools.cache
def available() -> bool:
    """Return whether this process may use tiles for products in bfloat16: on Linux, on a processor with AMX."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    features = llvmlite.binding.get_host_cpu_features()
    if not all(features.get(name, False) for name in ("amx-tile", "amx-bf16", "avx512f", "avx512bw", "avx512vl")):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)


def fit(tensor: torch.Tensor) -> bool:
    """Return whether tiles can multiply the numbers of a tensor: float32, on a CPU with AMX."""
    return tensor.is_cpu and tensor.dtype == torch.float32 and available()


def configuration() -> Any:
    """Return what `configure` loads: all eight tiles of full size, uint8 `[64]`."""
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

    def no_argument(typing: Any) -> Any:
        return types.void(), build

    def one_argument(typing: Any, first: Any) -> Any:
        return types.void(types.int64), build

    def two_arguments(typing: Any, first: Any, second: Any) -> Any:
        return types.void(types.int64, types.int64), build

    return intrinsic((no_argument, one_argument, two_arguments)[addresses + numbers])


configure = _instruction("llvm.x86.ldtilecfg", (), 1, 0)  # (address of the configuration)
release = _instruction("llvm.x86.tilerelease", (), 0, 0)
# (address, bytes from one row to the next)
_load = [_instruction("llvm.x86.tileloadd64", (tile,), 1, 1) for tile in range(8)]
_store = [_instruction("llvm.x86.tilestored64", (tile,), 1, 1) for tile in range(4)]
_zero = [_instruction("llvm.x86.tilezero", (tile,), 0, 0) for tile in range(4)]
_add_product = {
    (total, left, right): _instruction("llvm.x86.tdpbf16ps", (total, left, right), 0, 0)
    for total, left, right in ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7))
}
_load0, _load1, _load2, _load3, _load4, _load5, _load6, _load7 = _load
_store0, _store1, _store2, _store3 = _store
_zero0, _zero1, _zero2, _zero3 = _zero
_add0, _add1, _add2, _add3 = _add_product.values()


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
    """Write the sums; the arguments are those of read_sums."""
    _store0(place, row)
    _store1(place + beside, row)
    _store2(place + below, row)
    _store3(place + below + beside, row)
