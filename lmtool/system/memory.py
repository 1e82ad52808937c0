"""The memory that is available, and that this process has."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def memory_available() -> int | None:
    """Bytes that this process can allocate without swapping, within its cgroup's limit; None where that is unknown."""
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
    """Bytes of this process that are in memory, pages of files among them; None where that is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def is_nearly_used(memory: int) -> bool:
    """Whether this process has most of so many bytes, or may have: until it is asked again it grows."""
    resident = memory_resident()
    return resident is None or resident > memory * 3 // 4


def pieces_of(array: npt.NDArray[Any], size: int) -> Iterator[npt.NDArray[Any]]:
    """An array `[N]` in pieces of `size`; one in a file leaves the memory after each."""
    for first in range(0, len(array), size):
        yield array[first : first + size]
        release(array)


def release(array: npt.NDArray[Any] | mmap.mmap) -> None:
    """Drop the pages of an array in a file from memory: they are read again when they are used. One in memory stays."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)
