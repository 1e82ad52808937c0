"""Scalar functions of compiled loops, and exponentials made of them, against numpy in float64; numbers in bfloat16."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import njit

from lmtool.neural.forms import _network_output as network_output
from lmtool.neural.forms import loops as fast_math
from lmtool.neural.forms.loops import bfloat16, widen_bfloat16

EDGES = [0.0, 1e-30, 1.0, np.inf]
CASES = {
    "tanh": (fast_math.tanh, np.tanh, [*np.linspace(-30, 30, 100_001), -np.inf, *EDGES], 2e-7, 0.0),
    "exp_below": (fast_math.exp_below, np.exp, np.linspace(-87, 0, 100_001), 0.0, 3e-7),
    "error_function": (fast_math.error_function, np.vectorize(math.erf), np.linspace(-6, 6, 100_001), 5e-7, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_near_numpys(name: str) -> None:
    ours, theirs, values, atol, rtol = CASES[name]

    @njit
    def many(x: np.ndarray, found: np.ndarray) -> None:
        for k in range(len(x)):
            found[k] = ours(x[k])

    x = np.array(values, dtype=np.float32)
    found = np.empty_like(x)
    many(x, found)
    np.testing.assert_allclose(found, theirs(x.astype(np.float64)), atol=atol, rtol=rtol)
    many(np.array([np.nan], dtype=np.float32), found[:1])
    assert np.isnan(found[0])
    double = np.array(values)
    found = np.empty_like(double)
    many(double, found)
    np.testing.assert_allclose(found, theirs(double), rtol=1e-15, atol=1e-300)


def test_exp_below_far_below() -> None:
    @njit
    def one(x: np.float32) -> np.float32:
        return fast_math.exp_below(x)

    assert one(np.float32(-1e30)) == pytest.approx(np.exp(-87), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_of_columns(dtype: type) -> None:
    rng = np.random.default_rng(0)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    for outputs in (1, 5, 64, 129):
        scores = (20 * rng.normal(size=(7, outputs))).astype(dtype)
        bias, targets = rng.normal(size=outputs).astype(dtype), rng.integers(0, outputs, 7)
        whole = scores.astype(float) + bias
        loss, share, largest = (np.empty(7, dtype=dtype) for _ in range(3))
        columns = np.ascontiguousarray(scores.T)
        network_output._exp_columns(columns, bias, targets, loss, share, largest)
        top = whole.max(1, keepdims=True)
        np.testing.assert_allclose(columns.T, np.exp(whole - top), rtol=tolerance, atol=1e-37)
        total = np.exp(whole - top).sum(1)
        np.testing.assert_allclose(share, 1 / total, rtol=tolerance)
        want = np.log(total) + top[:, 0] - whole[np.arange(7), targets]
        np.testing.assert_allclose(loss, want, rtol=tolerance, atol=tolerance)


@njit
def there_and_back(value: float) -> tuple[int, float]:
    bits = bfloat16(value)
    return bits, widen_bfloat16(bits)


def test_numbers_are_rounded_to_the_nearest_and_to_even() -> None:
    eighth_bit = 2.0**-8  # half of the last of bfloat16's seven bits behind the point
    for value, bits, back in [
        (1.0, 0x3F80, 1.0),
        (-2.5, 0xC020, -2.5),
        (1 + eighth_bit, 0x3F80, 1.0),  # as near to 1 + 2^-7: even is 1
        (1 + 3 * eighth_bit, 0x3F82, 1 + 4 * eighth_bit),
        (1 + 1.01 * eighth_bit, 0x3F81, 1 + 2 * eighth_bit),
        (0.0, 0, 0.0),
        (math.inf, 0x7F80, math.inf),
    ]:
        found = there_and_back(np.float32(value))
        assert (found[0] & 0xFFFF, found[1]) == (bits, back)
