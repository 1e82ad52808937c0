"""Have the C library keep the memory that tensors free."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
ALL = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Have the C library keep freed blocks for the next step instead of giving them back to the system.

    A step of training frees and allocates the same large blocks; a new mapping costs a page fault per 4 KiB, which can
    take longer than the arithmetic. Does nothing where the C library is not GNU's.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_MMAP_THRESHOLD, ALL)
        library.mallopt(M_TRIM_THRESHOLD, ALL)
