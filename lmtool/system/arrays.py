"""Validation of arguments as arrays, converted only if nothing is lost; arrays, also in files, in chunks."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Size = int | str  # size of a dimension; a letter stands for any size

MAX_COUNT_SUM = 3 << 59  # builders of trees add up to four times as much in an int64
NUMBERS_AT_ONCE = 1 << 23  # maximum numbers of distributions over words in memory: 64 MiB in float64
LARGEST_LOG_PROB, LARGEST_LOG_WEIGHT = 1e-3, 1e6  # p = 1 may have been rounded up
NUMBERS_PER_PIECE = 1 << 22  # numbers checked at once
LN10 = math.log(10)  # log-probabilities in files of other tools are often decadic


def in_chunks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` indices that cover those from 0 to before `count`."""
    for at in range(0, count, size):
        yield slice(at, min(at + size, count))


def rows_at_once(width: int, most: int) -> int:
    """Return the number of rows of `width` numbers that may exist at once: `most`, or fewer by NUMBERS_AT_ONCE."""
    return max(1, min(most, NUMBERS_AT_ONCE // max(1, width)))


def as_array(where: str, value: object) -> npt.NDArray[Any]:
    """Return a list, an array or a tensor on the CPU as an array. Raises ValueError, naming `where`, for others."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a ragged list, a tensor on a GPU or with gradients
        raise ValueError(f"{where} cannot be read as an array: {str(error).splitlines()[0]}") from None


def describe(value: Any) -> str:
    """Describe an array or tensor for messages: dtype, shape, unusual layout and device; else the type."""
    if isinstance(value, type) or not (hasattr(value, "dtype") and hasattr(value, "shape")):
        return f"a {type(value).__name__}"
    layout, device = str(getattr(value, "layout", "torch.strided")), str(getattr(value, "device", "cpu"))
    unusual = ("" if layout == "torch.strided" else f" {layout}") + ("" if device == "cpu" else f" on {device}")
    return f"{value.dtype} {list(value.shape)}{unusual}".replace("torch.", "")


def has_shape(found: Sequence[int], shape: Sequence[Size]) -> bool:
    """Return whether an array or tensor has a given shape, in which a letter stands for any size."""
    return len(found) == len(shape) and all(
        size == want or isinstance(want, str) for size, want in zip(found, shape, strict=True)
    )


def out_of_range(low: int, high: int) -> str:
    """Describe for messages which extreme is out of range, given the extremes of numbers that must be 0 or more."""
    return f"a minimum of {low:,}" if low < 0 else f"a maximum of {high:,}"


def whole_numbers(where: str, value: object, shape: Sequence[Size], *, below: int | None = None) -> IntArray:
    """Return an argument that holds ids as int64, in C order and writable; raise ValueError if it does not.

    value: an array of any integer dtype, a tensor on the CPU or a list. where: its name in messages, e.g.
    "NgramModel.log_prob: contexts". shape: the size of each dimension, a letter for any size. below: upper limit of all
    numbers; all must be 0 or more.
    """
    array = as_array(where, value)
    ids = "" if below is None else f" from 0 to {below - 1:,}"
    integers = array.dtype.kind in "iu" or array.size == 0
    if not (integers and has_shape(array.shape, shape)):
        raise ValueError(f"{where} must be integers{ids} [{', '.join(map(str, shape))}]; got {describe(array)}")
    limit = (1 << 63) if below is None else below
    # As unsigned numbers, negative ones are the largest: one pass checks both bounds.
    if array.size and not (array.dtype == np.int64 and array.view(np.uint64).max() < limit):
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= limit:
            raise ValueError(f"{where} must be integers{ids or ' of 0 or more'}; got {out_of_range(low, high)}")
    return array if array.dtype == np.int64 and array.flags.carray else np.require(array, np.int64, ["C", "W"])


def sentence_offsets(where: str, value: object, tokens: int) -> IntArray:
    """Return the starts of sentences, int64 `[S + 1]`, ascending from 0 to N; raise ValueError for others."""
    offsets = whole_numbers(where, value, ("S + 1",))
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != tokens or (np.diff(offsets) < 0).any():
        raise ValueError(f"{where} must ascend from 0 to {tokens:,}, the number of ids; got {offsets}")
    return offsets


def logs(where: str, value: Array, most: float = LARGEST_LOG_PROB) -> Array:
    """Return logarithms, float `[N]`, which may be -inf and are at most `most`. Raises ValueError for another shape or
    type, and, naming the first wrong value, for nan and for larger values.
    """
    if value.ndim != 1 or value.dtype.kind != "f":
        raise ValueError(f"{where} must be floating-point [N]; got {describe(value)}")
    at = 0
    for piece in pieces_of(value, NUMBERS_PER_PIECE):
        if not float(piece.max()) <= most:  # also for nan
            wrong = int(np.argmin(piece <= np.float64(most)))
            raise ValueError(f"{where}[{at + wrong:,}] must be at most {most:.3g}; got {piece[wrong]}")
        at += len(piece)
    return value


def word_counts(where: str, value: object, words: int | None = None) -> IntArray:
    """Return an argument that holds the counts of words, int64 `[W]`; raise ValueError if it does not.

    value: whole numbers of 0 or more, whose sum fits, in an array, a tensor on the CPU or a list. words: W, if known.
    """
    array = as_array(where, value)
    shape = "[W], one or more" if words is None else f"[{words}]"
    if array.ndim != 1 or not len(array) or words not in (None, len(array)) or array.dtype.kind not in "iuf":
        raise ValueError(f"{where} must be whole numbers {shape}; got {describe(array)}")
    numbers = array.astype(np.float64)
    whole = np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers))
    if not whole.all():
        raise ValueError(f"{where} must be whole numbers of 0 or more; got {array[~whole][0]}")
    if numbers.sum() >= MAX_COUNT_SUM:
        raise ValueError(f"{where} must have a sum below {MAX_COUNT_SUM:.3g}; got {numbers.sum():.3g}")
    return np.require(array, np.int64, ["C", "W"])


def pieces_of(array: npt.NDArray[Any], size: int) -> Iterator[npt.NDArray[Any]]:
    """Yield an array `[N]` in pieces of `size`; each piece of an array in a file is dropped from memory afterwards."""
    for first in range(0, len(array), size):
        yield array[first : first + size]
        release(array)


def release(array: npt.NDArray[Any] | mmap.mmap) -> None:
    """Drop the pages of an array in a file from memory; they are read again when used. No-op for an array in memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


def decimal(text: str) -> float:
    """Return the number in an ASCII text, nan for other text; Python's float also takes 1_0 and other digits."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan
