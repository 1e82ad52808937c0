"""Checks of the arguments of public members of lmtool.neural. Each raises ValueError in one line: the method and its
argument, what it must be, what it is.

They check shape, dtype and device, and on a CPU the range of ids, since compiled loops would read or write outside
their arrays. On a GPU the range is left to the assertions of torch's kernels: reading it would wait for the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.config.rules import is_number
from lmtool.system.arrays import Size, as_array, describe, has_shape, out_of_range

Shape = tuple[Size, ...]
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = {torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _place(device: torch.device) -> str:
    return "" if device.type == "cpu" else f" on {device}"


def require_hidden(of: object, argument: str, h: object, dim: int | None, like: Tensor | None) -> Tensor:
    """Return hidden states in the dtype of the weights: h itself, or widened, because autocast may narrow it.

    of: the layer. argument: its name in messages after the layer's, e.g. ".forward: h". dim: D. like: a weight, for its
    dtype and device. None: any. Raises ValueError for another shape, dtype or device.
    """
    if isinstance(h, Tensor) and h.layout is torch.strided and h.is_floating_point():
        shape = h.shape
        if len(shape) >= 2 and (dim is None or shape[-1] == dim):
            if like is None:
                return h
            if (h.is_cpu and like.is_cpu) or h.device == like.device:
                if h.dtype is like.dtype:
                    return h
                if torch.promote_types(h.dtype, like.dtype) is like.dtype:
                    return h.to(like.dtype)
    kind, place = "floating-point", "" if like is None else _place(like.device)
    if like is not None:
        kind = ", ".join(_name(t) for t in FLOATS if torch.promote_types(t, like.dtype) is like.dtype)
        kind = " or ".join(kind.rsplit(", ", 1))
    size = "D" if dim is None else dim
    wanted = f"a {kind} tensor [B, {size}] or [B, T, {size}]{place}"
    raise ValueError(f"{type(of).__name__}{argument} must be {wanted}; got {describe(h)}")


def require_ids(
    of: object, argument: str, ids: object, shapes: tuple[Shape, ...], count: int | None, like: Tensor
) -> Tensor:
    """Return ids as int64, contiguous, from a tensor of any integer dtype, an array or a list.

    of, argument: as in require_hidden. shapes: allowed shapes. count: ids must be from 0 to below it; None: any. like:
    a tensor, whose device a tensor of ids must have. Raises ValueError for another shape, dtype or device, and on a CPU
    for ids out of range.
    """
    values = ids
    if not isinstance(ids, Tensor):
        array = as_array(f"{type(of).__name__}{argument}", ids)
        whole = np.issubdtype(array.dtype, np.integer)
        values = torch.tensor(array.astype(np.int64), device=like.device) if whole else None
    if isinstance(values, Tensor) and (
        values.shape in shapes or any(has_shape(values.shape, shape) for shape in shapes)
    ):
        if values.dtype is not torch.int64 and values.dtype in INTEGERS:
            values = values.long()
        on_cpu = values.is_cpu and like.is_cpu
        if values.dtype is torch.int64 and values.layout is torch.strided and (on_cpu or values.device == like.device):
            values = values.contiguous()
            flat = values if values.dim() == 1 else values.view(-1)
            if count is None or not on_cpu or all_below(flat.numpy(), count):
                return values
            wrong = out_of_range(int(values.min()), int(values.max()))
            raise ValueError(f"{type(of).__name__}{argument} must be ids from 0 to {count - 1:,}; got {wrong}")
    wanted = " or ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes)
    raise ValueError(f"{type(of).__name__}{argument} must be int64 {wanted}{_place(like.device)}; got {describe(ids)}")


@njit(cache=True, nogil=True)
def all_below(ids: Any, count: int) -> bool:
    """Return whether all ids `[N]` are from 0 to count - 1, in one pass without a branch."""
    outside: Any = 0
    for k in range(len(ids)):
        outside += np.uint64(ids[k]) >= np.uint64(count)  # a negative number is a large one without its sign
    return bool(outside == 0)


def require_counts(where: str, counts: object, words: int | None = None) -> Tensor:
    """Return counts of words, float64 `[O]`, finite and 0 or more, from a tensor, array or list. words: O, if known."""
    given = counts if isinstance(counts, Tensor) else as_array(where, counts)
    number = isinstance(given, Tensor) or given.dtype.kind in "iuf"
    if not number or given.ndim != 1 or not len(given) or words not in (None, len(given)):
        shape = "[O], one or more" if words is None else f"[{words}]"
        raise ValueError(f"{where} must be numbers {shape}; got {describe(given)}")
    tensor = (given if isinstance(given, Tensor) else torch.from_numpy(given.astype(np.float64))).detach().double()
    if not bool((tensor.isfinite() & (tensor >= 0)).all()):
        raise ValueError(f"{where} must be finite numbers of 0 or more; got a minimum of {tensor.min():g}")
    return tensor


def require_size(where: str, size: object) -> int:
    """Return a size of 1 or more. Raises ValueError for others."""
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise ValueError(f"{where} must be a whole number of 1 or more; got {size!r}")
    return int(size)


def require_number(where: str, value: object, accepts: Callable[[Any], bool], rule: str) -> float:
    """Return a real number that fits a rule, e.g. "above 0". Raises ValueError for others, and for other objects."""
    if not is_number(value, -math.inf, math.inf) or not accepts(value):
        raise ValueError(f"{where} must be {rule}; got {value!r}")
    return float(value)  # type: ignore[arg-type]


def require_odds(where: str, odds: object) -> Tensor:
    """Return a copy of log odds of nodes, a floating-point tensor `[N]`. Raises ValueError for others."""
    if not (isinstance(odds, Tensor) and odds.dim() == 1 and odds.is_floating_point()):
        raise ValueError(f"{where} must be a floating-point tensor [N]; got {describe(odds)}")
    return odds.detach().clone()


def require_vectors(where: str, vectors: Tensor, words: int, dim: int) -> None:
    """Raise ValueError unless vectors are floating-point `[words or more, dim]`."""
    shape = vectors.shape if isinstance(vectors, Tensor) and vectors.is_floating_point() else ()
    if len(shape) != 2 or shape[0] < words or shape[1] != dim:
        raise ValueError(f"{where} must be floating-point [{words} or more, {dim}]; got {describe(vectors)}")
