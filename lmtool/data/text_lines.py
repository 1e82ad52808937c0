"""Lines of words and numbers as bytes, for files that other programs read."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import FloatArray, IntArray

SIGNIFICANT = -1  # instead of a number of decimals: nine significant digits, which distinguish all float32 numbers
MAX_NUMBER_BYTES = 32
MAX_EXACT = 9e15  # whole numbers up to here are exact in float64
TAB, LINE_FEED, SPACE, MINUS, POINT, ZERO = 9, 10, 32, 45, 46, 48  # characters


def text_lines(
    before: FloatArray,
    words: IntArray,
    after: FloatArray,
    decimals: list[int],
    joined: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]],
) -> bytes:
    """Return M lines of numbers `[M, B]`, words `[M, k]` and numbers `[M, A]`, with tabs between numbers and words and
    spaces between words.

    decimals: number of decimals of each column of numbers, `[B + A]`, or SIGNIFICANT. joined: the result of join_words.
    Numbers that are too large for their decimals are written as 1.2345e+20, nan as an empty string.
    """
    lengths = np.diff(joined[0])
    room = int(lengths[words].sum()) + len(words) * (len(decimals) * (MAX_NUMBER_BYTES + 1) + words.shape[1] + 1)
    out = np.empty(room, dtype=np.uint8)
    return out[: int(_write_lines(before, words, after, np.array(decimals, dtype=np.int64), *joined, out))].tobytes()


@numba.njit(cache=True, nogil=True)
def _write_lines(before: Any, words: Any, after: Any, decimals: Any, starts: Any, letters: Any, out: Any) -> Any:
    """Write lines into `out`; return the number of bytes.

    Compiled, because short texts are scored, and n-grams read, faster than Python formats lines. The plain form is
    `"\\t".join(f"{value:.{d}f}" ...)`, which tests/evaluation/test_text_scores.py and tests/ngram compare it to.
    """
    at = 0
    for i in range(len(words)):
        for j in range(before.shape[1]):
            at = _write_number(before[i, j], decimals[j], out, at)
            out[at] = TAB
            at += 1
        for j in range(words.shape[1]):
            for k in range(starts[words[i, j]], starts[words[i, j] + 1]):
                out[at] = letters[k]
                at += 1
            out[at] = SPACE if j + 1 < words.shape[1] else TAB
            at += 1
        for j in range(after.shape[1]):
            at = _write_number(after[i, j], decimals[before.shape[1] + j], out, at)
            out[at] = TAB
            at += 1
        out[at - 1] = LINE_FEED
    return at


@numba.njit(cache=True, nogil=True)
def _write_number(value: float, decimals: int, out: Any, at: int) -> Any:
    """Write a number; return the position after it."""
    if np.isnan(value):
        return at
    if value < 0:
        out[at] = MINUS
        at += 1
        value = -value
    if np.isinf(value):
        out[at], out[at + 1], out[at + 2] = 105, 110, 102
        return at + 3
    trimmed = decimals == SIGNIFICANT
    if trimmed:
        decimals, scaled = 8, value
        while 0 < scaled < 1 and decimals < 18:
            scaled *= 10.0
            decimals += 1
    exponent = 0
    if value * 10.0**decimals >= MAX_EXACT:
        while np.round(value * 10.0**decimals) >= 10.0 ** (decimals + 1):  # 9.99999 is rounded to 10
            value /= 10
            exponent += 1
    whole: Any = np.int64(value)
    power = np.int64(10) ** decimals
    part: Any = np.int64(np.round((value - whole) * power))
    if part >= power:
        whole, part = whole + 1, part - power
    at = _write_whole(whole, 1, out, at)
    if decimals > 0 and not (trimmed and part == 0):
        out[at] = POINT
        at = _write_whole(part, decimals, out, at + 1)
        while trimmed and out[at - 1] == ZERO:
            at -= 1
    if exponent:
        out[at], out[at + 1] = 101, 43  # e+
        at = _write_whole(exponent, 2, out, at + 2)
    return at


@numba.njit(cache=True, nogil=True)
def _write_whole(value: int, digits: int, out: Any, at: int) -> Any:
    """Write a whole number of 0 or more with at least this many digits; return the position after it."""
    size = digits
    rest = value // np.int64(10) ** digits
    while rest > 0:
        rest //= 10
        size += 1
    for k in range(size - 1, -1, -1):
        out[at + k] = ZERO + value % 10
        value //= 10
    return at + size
