"""What the compiled loops of several forms share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from lmtool.system import parallel

Array = npt.NDArray[Any]
# Sums may be taken in any order, so that they are vectorised; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
NUMBERS_PER_THREAD = 1 << 17  # to read, for which a second thread is worth its start


def compiled(tensor: Tensor) -> bool:
    """Whether compiled loops can work on a tensor: on a CPU, in float32 or float64."""
    return tensor.is_cpu and tensor.dtype in (torch.float32, torch.float64)


def loops_serve(layer: object, x: Tensor) -> bool:
    """Whether a form by compiled loops serves a layer: wherever they can work on its argument x."""
    return compiled(x)


def as_arrays(*tensors: Tensor) -> list[Array]:
    """Return the memory of tensors on a CPU, for compiled loops."""
    return [tensor.detach().numpy() for tensor in tensors]


def over_segments(kernel: Any, arguments: Sequence[Any], starts: Array, width: int) -> None:
    """Run a kernel over segments, places starts[k] to before starts[k + 1], on several threads where there is enough
    work, cut so that each thread has as many places. width: numbers read for each place.
    """
    last, total = len(starts) - 1, int(starts[-1])
    pieces = min(parallel.threads(), total * width // NUMBERS_PER_THREAD)
    if pieces <= 1:
        kernel(*arguments, 0, last)
        return
    cuts = np.searchsorted(starts, np.arange(1, pieces) * (total // pieces)).tolist()
    ends = [0, *cuts, last]
    parallel.run((kernel, *arguments, ends[k], ends[k + 1]) for k in range(pieces))


@njit(nogil=True)
def copy_row(source: Array, target: Array) -> None:
    """target[j] = source[j] for the places of `target`.

    With a slice in its place numba compiles what it would say of unequal lengths: seconds in each function.
    """
    for j in range(len(target)):
        target[j] = source[j]
