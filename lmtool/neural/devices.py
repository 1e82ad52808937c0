"""The devices of neural models."""

from __future__ import annotations

import os

import torch

from lmtool.errors import UserError


def choose_device(name: str) -> torch.device:
    """The device of a setting: auto is cuda where there is one, else cpu. Raises UserError for one that is not there.

    Of several processes that torchrun started on one machine, each has the cuda device of its local rank.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
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


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies bf16 faster than fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as text:
            flags = text.read()
        return any(name in flags for name in ("amx_bf16", "avx512_bf16"))
    except OSError:
        return False
