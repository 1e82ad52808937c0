"""This process: Numba's cache folder, memory, and signals: Ctrl-C at the end of a step or in a callback of C code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lmtool.errors import Interrupted, UserError

FOLDER = "NUMBA_CACHE_DIR"  # numba's own setting
PACKAGE = Path(__file__).resolve().parent.parent

MAX_THREADS = 1024  # the libraries end the process if the system refuses a thread
# Environment variables that are whole numbers, read here and by the libraries, with their bounds.
NUMBERS = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), (1, MAX_THREADS))
NUMBERS |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LMTOOL_JOBS_AT_ONCE"), (1, 1 << 20))
NUMBERS |= dict.fromkeys(("RANK", "LOCAL_RANK"), (0, 1 << 20))


def require_environment() -> None:
    """Raise UserError for an environment variable that is not the number it should be, and a deleted working folder."""
    for name, (low, high) in NUMBERS.items():
        given = os.environ.get(name, "").strip()
        if not given:  # int("") raises an error in the libraries
            os.environ.pop(name, None)
        for text in filter(None, map(str.strip, given.split(",") if name == "OMP_NUM_THREADS" else [given])):
            if not (text.isdecimal() and len(text) < 10 and low <= int(text) <= high):
                raise UserError(f"{name}={text}: must be a number from {low} to {high}; unset this variable")
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the folder that you are in is gone ({error.strerror}): change to another") from None


def use_writable_cache(package: Path = PACKAGE) -> None:
    """Give numba a cache folder for this process, removed at its end, if it cannot write to its usual places.

    To be called before numba is imported. numba caches compiled loops beside their Python files or in the user's cache
    folder; if it can write to neither, e.g. for a user without a home folder and a package installed by root, its
    import raises an exception. No-op if NUMBA_CACHE_DIR is set.
    """
    usual = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "numba"  # on Linux
    if os.environ.get(FOLDER) or "numba" in sys.modules or _is_writable(package) or _is_writable(usual):
        return
    import atexit
    import shutil
    import tempfile

    # Not a name that others could guess: files in the folder are executed.
    folder = tempfile.mkdtemp(prefix="lmtool-compiled-")
    os.environ[FOLDER] = folder
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a fork
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _is_writable(folder: Path) -> bool:
    """Return whether a folder can be written to or created."""
    existing = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    return existing is not None and os.access(existing, os.W_OK | os.X_OK)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
ALL = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Make the C library keep freed blocks for the next step instead of returning them to the system.

    A training step frees and allocates the same large blocks; a new mapping costs a page fault per 4 KiB, which can
    take longer than the arithmetic. No-op if the C library is not GNU's.
    """
    if sys.platform != "linux":
        return
    import ctypes

    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_MMAP_THRESHOLD, ALL)
        library.mallopt(M_TRIM_THRESHOLD, ALL)


def processor() -> str:
    """Return the processor's name, or its architecture if the name is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    import platform

    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


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


AGAIN = 0.05  # seconds until a swallowed SIGINT is raised again; longer than a callback


@dataclass(slots=True)
class StopRequest:
    """The number of the received signal; 0 if none was received."""

    signal: int = 0


@contextmanager
def preserve_interrupts() -> Iterator[StopRequest]:
    """Raise a KeyboardInterrupt again if, within the block, it was lost in a callback or a finalizer.

    Python prints such an exception and continues (`sys.unraisablehook`), and the caller in C fails later, as LLVM's
    compiler does in Numba. No-op outside the main thread, and if SIGINT does not raise KeyboardInterrupt as usual.
    """
    stop = StopRequest()
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        signal.default_int_handler(number, frame)

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        again.append(threading.Timer(AGAIN, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)))
        again[-1].daemon = True
        again[-1].start()

    again: list[threading.Timer] = []
    before = sys.unraisablehook
    sys.unraisablehook = unraisable
    signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        for timer in again:
            timer.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before


@contextmanager
def defer_signals() -> Iterator[StopRequest]:
    """Note SIGINT (Ctrl-C) and SIGTERM while the block runs; repeating the signal raises Interrupted immediately.

    A different one does not: torchrun sends SIGTERM after a SIGINT that its processes have also received.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals only to the main thread
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal == number:
            raise Interrupted(number, "stopped immediately: the steps since the last checkpoint are lost")
        stop.signal = stop.signal or number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
