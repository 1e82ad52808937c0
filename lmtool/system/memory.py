"""Available memory, memory of this process, and arrays in files read piece by piece."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def memory_available() -> int | None:
    """Return the bytes that this process can allocate without swapping, within its cgroup's limit; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return available
    return min(available, int(limit) - used) if limit.isdigit() else available


def memory_resident() -> int | None:
    """Return the resident bytes of this process, including pages of files; None if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def is_nearly_used(memory: int) -> bool:
    """Return whether this process uses most of this many bytes, or may before the next call."""
    resident = memory_resident()
    return resident is None or resident > memory * 3 // 4


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
