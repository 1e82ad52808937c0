"""Arguments as arrays: what a caller gives, converted where nothing is lost, else refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Size = int | str  # of a dimension; a letter where any will do

LARGEST = 3 << 59  # of a sum of counts: builders of trees add up to four times as much in an int64


def as_array(where: str, value: object) -> npt.NDArray[Any]:
    """The array of a list, an array or a tensor on the CPU. Raises ValueError, naming `where`, for what is none."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a ragged list, a tensor on a GPU, one with gradients
        raise ValueError(f"{where} cannot be read as an array: {str(error).splitlines()[0]}") from None


def described(array: npt.NDArray[Any]) -> str:
    """The type and shape of an array, for messages."""
    return f"{array.dtype} {list(array.shape)}"


def out_of_range(low: int, high: int) -> str:
    """Which end of some numbers is out of range where they must be 0 or more, for messages."""
    return f"a minimum of {low:,}" if low < 0 else f"a maximum of {high:,}"


def whole_numbers(where: str, value: object, shape: Sequence[Size], *, below: int | None = None) -> IntArray:
    """An argument that holds ids: int64 of this shape, in C order and writable, from an array of any integer type, a
    tensor on the CPU or a list.

    where: what messages call it, as "NgramModel.log_prob: contexts". shape: the size of each dimension, a letter for
    any size. below: what all numbers must be below; all must be 0 or more. Raises ValueError, with what it must be and
    what it is, for another shape or type and for numbers out of range.
    """
    array = as_array(where, value)
    ids = "" if below is None else f" from 0 to {below - 1:,}"
    sizes = [size if isinstance(size, int) else found for size, found in zip(shape, array.shape, strict=False)]
    integers = np.issubdtype(array.dtype, np.integer) or array.size == 0
    if list(array.shape) != sizes or len(shape) != array.ndim or not integers:
        raise ValueError(f"{where} must be integers{ids} [{', '.join(map(str, shape))}]; got {described(array)}")
    most = (1 << 63) if below is None else below
    # Negative numbers are the largest without their sign: one pass for both ends.
    if array.size and not (array.dtype == np.int64 and array.view(np.uint64).max() < most):
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= most:
            raise ValueError(f"{where} must be integers{ids or ' of 0 or more'}; got {out_of_range(low, high)}")
    return np.require(array, np.int64, ["C", "W"])


def sentence_offsets(where: str, value: object, tokens: int) -> IntArray:
    """An argument that holds where sentences begin, int64 `[S + 1]`: ascending from 0 to N, the number of tokens.

    Raises ValueError for another shape, type or order.
    """
    offsets = whole_numbers(where, value, ("S + 1",))
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != tokens or (np.diff(offsets) < 0).any():
        raise ValueError(f"{where} must ascend from 0 to {tokens:,}, the number of ids; got {offsets}")
    return offsets


def word_counts(where: str, value: object, words: int | None = None) -> IntArray:
    """An argument that holds the counts of words, int64 `[W]`, from whole numbers in an array, a tensor on the CPU or
    a list.

    words: W where it is known. Raises ValueError for none, for negative ones, fractions, NaN and numbers whose sum
    would not fit an int64, and for another shape.
    """
    array = as_array(where, value)
    shape = "[W], one or more" if words is None else f"[{words}]"
    if array.ndim != 1 or not len(array) or words not in (None, len(array)) or array.dtype.kind not in "iuf":
        raise ValueError(f"{where} must be whole numbers {shape}; got {described(array)}")
    numbers = array.astype(np.float64)
    whole = np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers))
    if not whole.all():
        raise ValueError(f"{where} must be whole numbers of 0 or more; got {array[~whole][0]}")
    if numbers.sum() >= LARGEST:
        raise ValueError(f"{where} must have a sum below {LARGEST:.3g}; got {numbers.sum():.3g}")
    return np.require(array, np.int64, ["C", "W"])
