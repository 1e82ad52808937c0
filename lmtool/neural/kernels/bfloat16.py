"""Numbers in bfloat16 for compiled loops, which know them as uint16: widened when read, rounded when written."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from lmtool.neural.kernels.fast_math import of_bits


@intrinsic
def bits_of(typing: Any, value: Any) -> Any:
    """The bits of a float32, int32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), build


@njit(nogil=True, inline="always")
def bfloat16(value: float) -> Any:
    """The bits of the nearest bfloat16, in the lower half of an int32; of the even one where two are as near."""
    bits: Any = bits_of(value)  # type: ignore[call-arg]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@njit(nogil=True, inline="always")
def widened(bits: int) -> Any:
    """The float32 of the bits of a bfloat16."""
    return of_bits(np.int32(bits) << np.int32(16))  # type: ignore[call-arg]
