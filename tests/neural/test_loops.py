"""Scalar functions of compiled loops, and loops over rows, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from lmtool.neural.kernels import fast_math, loops

EDGES = [0.0, 1e-30, 1.0, np.inf]
CASES = {
    "tanh": (fast_math.tanh, np.tanh, [*np.linspace(-30, 30, 100_001), -np.inf, *EDGES], 2e-7, 0.0),
    "exp_below": (fast_math.exp_below, np.exp, np.linspace(-87, 0, 100_001), 0.0, 3e-7),
    "log1p_below": (fast_math.log1p_below, np.log1p, np.linspace(0, 1, 100_001), 2e-7, 3e-7),
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
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_exponentials_of_rows_and_columns(dtype: type, form: str) -> None:
    rng = np.random.default_rng(0)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    for outputs in (1, 5, 64, 129):
        scores = (20 * rng.normal(size=(7, outputs))).astype(dtype)
        bias, targets = rng.normal(size=outputs).astype(dtype), rng.integers(0, outputs, 7)
        whole = scores.astype(float) + bias
        loss, share, largest = (np.empty(7, dtype=dtype) for _ in range(3))
        if form == "rows":
            loops.exp_rows(scores, bias, targets, loss, share, 0, 7)
        else:
            columns = np.ascontiguousarray(scores.T)
            loops.exp_columns(columns, bias, targets, loss, share, largest)
            scores = columns.T
        top = whole.max(1, keepdims=True)
        np.testing.assert_allclose(scores, np.exp(whole - top), rtol=tolerance, atol=1e-37)
        total = np.exp(whole - top).sum(1)
        np.testing.assert_allclose(share, 1 / total, rtol=tolerance)
        want = np.log(total) + top[:, 0] - whole[np.arange(7), targets]
        np.testing.assert_allclose(loss, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("one", [False, True])
def test_logistic(dtype: type, one: bool) -> None:
    rng = np.random.default_rng(0)
    scores = np.concatenate([5 * rng.normal(size=9000), [0, 80, -80, 200, -200]]).astype(dtype)
    signs = np.array([-1], dtype=np.int32) if one else rng.choice([-1, 1], len(scores)).astype(np.int32)
    grad = np.empty_like(scores)
    total = loops.logistic(scores, signs, grad, 0, len(scores))
    x = scores.astype(float) * signs
    tolerance = 3e-6 if dtype == np.float32 else 1e-12
    assert total == pytest.approx(np.logaddexp(0, -x).sum(), rel=tolerance)
    np.testing.assert_allclose(grad, -signs * np.exp(-np.logaddexp(0, x)), rtol=tolerance, atol=1e-37)
