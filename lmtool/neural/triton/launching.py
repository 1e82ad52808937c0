"""What every launch of a kernel needs: the device, its processors, and sizes of blocks."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
from torch import Tensor

NUMBERS = 4096  # that a program of 4 warps holds of rows: 32 registers of each thread
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def launch(kernel: Any, grid: tuple[int, ...], like: Tensor, *arguments: Any, **constants: Any) -> None:
    """Run a kernel on the device of a tensor, unless there is nothing to do. Triton itself takes the current device."""
    if min(grid) == 0:
        return
    if like.device.type == "cuda":
        with torch.cuda.device(like.device):
            kernel[grid](*arguments, **constants, enable_fp_fusion=True)  # Triton 3.9 warns where nobody says
    else:
        kernel[grid](*arguments, **constants)


def power_of_two(number: int) -> int:
    """The least power of two that is not below a number above 0."""
    return 1 << (number - 1).bit_length()


def row_blocks(dim: int, longest: int) -> dict[str, int]:
    """Sizes of a program on whole rows `[dim]`, of lists of up to `longest`.

    16 rows at most: more independent loads than the latency of memory asks for only take registers.
    """
    block_d = power_of_two(dim)
    rows = max(1, min(16, NUMBERS // block_d, power_of_two(max(longest, 1))))
    return {"D": dim, "BLOCK_D": block_d, "BLOCK_P": rows, "num_warps": 4 if rows * block_d >= 1024 else 1}


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a device: 132 on an H200."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    """Tensors as kernels read them, row after row."""
    return [None if tensor is None else tensor.detach().contiguous() for tensor in tensors]


def counted(number: int, of: int) -> int:
    """How many blocks of a size cover a number."""
    return -(-number // of)
