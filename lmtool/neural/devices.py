"""The devices of neural models, and whether they multiply bfloat16 faster."""

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

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # without it cuBLAS may take products in another order from run to run
TURNS = 9  # products of each type that are timed, of a quarter of a billion operations
PAYS = 1.5  # so many times as fast as fp32 bf16 has to be: weights and hidden are rounded to it first


@contextmanager
def repeatable(device: torch.device, wanted: bool) -> Iterator[None]:
    """While the block runs, have a GPU repeat its results to the bit, if that is wanted; a CPU always does.

    By torch.use_deterministic_algorithms: sums into rows are then sorted first, and an operation that has no such form
    raises RuntimeError. choose_device has told cuBLAS before.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    before, fills = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic
    filled = fills.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    fills.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # nothing here reads what it has not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        fills.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def choose_device(name: str) -> torch.device:
    """The device of a setting: auto is cuda where there is one, else cpu. Raises UserError for one that is not there.

    Of several processes that torchrun started on one machine, each has the cuda device of its local rank. For cuda it
    sets CUBLAS_WORKSPACE_CONFIG, unless that is set: torch looks at it once, at the first product of a process, which
    may be long before a training that is to repeat to the bit.
    """
    if torch.cuda.is_available() and name != "cpu":
        os.environ.setdefault(WORKSPACE, ":4096:8")  # the 32 MiB that torch takes on Hopper anyway
    if name in ("auto", "cuda") and torch.cuda.is_available():
        rank, devices = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if rank >= devices:
            raise UserError(f"device={name}: process {rank} has no GPU, there are {devices} here; start fewer")
        return torch.device("cuda", rank)
    if name == "auto":
        return torch.device("cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and not (torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count()):
        raise UserError(f"device={name}: torch {torch.__version__} finds no such device here; take device=auto or cpu")
    if kind == "mps":
        raise UserError(
            "device=mps: the sums of lmtool's layers are in float64, which this device does not have; take device=cpu"
        )
    return torch.device(name)


def fits_dense(device: torch.device, numbers: int) -> bool:
    """Whether tables of so many weights in float32 fit on a device together with dense gradients and two numbers of
    optimizer's state for each: into half of the memory that is free there. On a CPU they do.
    """
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return 4 * 4 * numbers <= free // 2


def multiplies_bf16(tensor: Tensor) -> bool:
    """Whether torch multiplies bf16 faster than the type of a tensor on its device: on a GPU with the units, and for
    float32 on a CPU that has them, where it is measured, once in a process.
    """
    if tensor.device.type == "cuda":
        return has_bf16(tensor.device)
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and _measured_faster()


def has_bf16(device: torch.device) -> bool:
    """Whether a device has units that multiply bf16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as text:
            flags = text.read()
        return any(name in flags for name in ("amx_bf16", "avx512_bf16"))
    except OSError:
        return False


@functools.cache
def _measured_faster() -> bool:
    """Whether this CPU has units for bf16 that pay: some with AVX-512 multiply four times as fast by them, others not
    at all, and none says so. The best of several turns, so that what else runs does not decide.
    """
    if not has_bf16(torch.device("cpu")):
        return False
    left, right = torch.full((256, 256), 0.5), torch.full((256, 2048), 0.5)
    forms = [(left, right), (left.bfloat16(), right.bfloat16())]
    best = [math.inf] * len(forms)
    for turn in range(TURNS + 1):
        for place, form in enumerate(forms):
            start = time.perf_counter()
            torch.mm(*form)
            if turn:  # the first one prepares
                best[place] = min(best[place], time.perf_counter() - start)
    return best[0] >= PAYS * best[1]
