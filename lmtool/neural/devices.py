"""Devices of neural models, and whether they multiply bfloat16 faster than float32."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lmtool.errors import UserError
from lmtool.neural.forms import tiles

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # without it the order of sums in cuBLAS may differ from run to run
TIMING_REPEATS = 9  # timed products of each type, of a quarter of a billion operations
MIN_BF16_SPEEDUP = 1.5  # over fp32, for choosing bf16: weights and hidden states must first be rounded


@contextmanager
def repeatable(device: torch.device, wanted: bool) -> Iterator[None]:
    """While the block runs, make results of a GPU repeatable to the bit, if wanted (a CPU's are, by equal threads).

    Uses torch.use_deterministic_algorithms: sums into rows are then sorted first, and an operation without a
    deterministic form raises RuntimeError. choose_device has configured cuBLAS before.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    before, fills = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic
    filled = fills.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    fills.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # no uninitialized memory is read here
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        fills.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def choose_device(name: str) -> torch.device:
    """Return the device of a setting; auto: cuda if available, else cpu. Raises UserError for an unavailable device.

    Each of several processes that torchrun started on one machine gets the cuda device of its local rank. For cuda,
    CUBLAS_WORKSPACE_CONFIG is set unless it is already, as torch reads it at a process's first product. cuDNN, which
    runs recurrent cells, rounds to TF32 by default: not here, as products are in fp32 or bf16.
    """
    if torch.cuda.is_available() and name != "cpu":
        torch.backends.cudnn.allow_tf32 = False
        os.environ.setdefault(WORKSPACE, ":4096:8")  # the 32 MiB that torch uses on Hopper anyway
    if name in ("auto", "cuda") and torch.cuda.is_available():
        rank, devices = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if rank >= devices:
            raise UserError(f"device={name}: process {rank} has no GPU ({devices} here); start fewer processes")
        return torch.device("cuda", rank)
    if name == "auto":
        return torch.device("cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and not (torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count()):
        raise UserError(f"device={name}: torch {torch.__version__} finds no such device here; use device=auto or cpu")
    if kind == "mps":
        raise UserError(
            "device=mps: the sums of lmtool's layers are in float64, which this device lacks; use device=cpu"
        )
    return torch.device(name)


def fits_dense(device: torch.device, numbers: int) -> bool:
    """Return whether tables of float32 numbers, dense gradients and optimizer state fit into half a GPU's memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return 4 * 4 * numbers <= free // 2


def multiplies_bf16(tensor: Tensor) -> bool:
    """Return whether torch multiplies bf16 faster than a tensor's dtype on its device.

    True on a GPU with units for bf16; for float32 on a CPU with such units it is measured, once per process.
    """
    if tensor.device.type == "cuda":
        return has_bf16(tensor.device)
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and _measured_faster()


def has_bf16(device: torch.device) -> bool:
    """Return whether a device has units that multiply bf16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return tiles.available() or tiles.has_dots()


@functools.cache
def _measured_faster() -> bool:
    """Return whether this CPU's units for bf16 are worth using: with AVX-512 some multiply four times as fast, others
    no faster, and none reports it. The best of several repeats, so that other load does not decide.
    """
    if not has_bf16(torch.device("cpu")):
        return False
    left, right = torch.full((256, 256), 0.5), torch.full((256, 2048), 0.5)
    forms = [(left, right), (left.bfloat16(), right.bfloat16())]
    best = [math.inf] * len(forms)
    for turn in range(TIMING_REPEATS + 1):
        for place, form in enumerate(forms):
            start = time.perf_counter()
            torch.mm(*form)
            if turn:  # the first one prepares
                best[place] = min(best[place], time.perf_counter() - start)
    return best[0] >= MIN_BF16_SPEEDUP * best[1]
