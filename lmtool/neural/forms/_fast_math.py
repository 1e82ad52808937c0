"""Scalar functions for compiled loops, in float32 without a branch or a call, so that loops over them are vectorized;
and numbers in bfloat16, which compiled loops see as uint16: widened when read, rounded when written.

The plain forms, math.exp, math.tanh and math.erf, are called for one number at a time, which takes five to ten times as
long; they are used in float64, in which gradients are checked. tests/neural/test_fast_math.py compares both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload


@njit(nogil=True, inline="always")
def bfloat16(value: float) -> Any:
    """Return the bits of the nearest bfloat16 (ties to even), in the lower half of an int32."""
    bits: Any = np.float32(value).view(np.int32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded if value == value else 0x7FC0  # a carry could turn NaN into a number


@njit(nogil=True, inline="always")
def widened(bits: int) -> Any:
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
