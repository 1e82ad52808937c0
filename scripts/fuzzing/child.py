"""A case in a forked child of this process, which has imported everything already: some hundredths of a second each."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MEMORY = 3 << 30  # bytes of address space that a case may take beyond what this process has
FILE = 64 << 20  # bytes of one file


@dataclass
class Outcome:
    """How a child ended. code: its exit code, below 0 by a signal; None where it had to be killed. interrupted: whether
    it ran past its limit and was sent SIGINT.
    """

    code: int | None
    interrupted: bool
    out: str
    err: str


def forked(
    work: Callable[[], int],
    folder: Path,
    *,
    limit: float,
    grace: float = 0.0,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """Run `work` in a child within `folder`; its exit code is what `work` returns, 70 where it raises.

    limit: seconds, after which it is sent SIGINT. grace: seconds more, after which it is killed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _as_child(work, folder, (nothing.fileno(), out.fileno(), err.fileno()), environment or {})
        code = _ended(child, limit)
        interrupted = code is None
        if interrupted and grace:
            os.kill(child, signal.SIGINT)
            code = _ended(child, grace)
        if code is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        with suppress(ProcessLookupError, PermissionError):  # what it may have started itself
            os.killpg(child, signal.SIGKILL)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 20).decode("utf-8", "replace"))
    return Outcome(code, interrupted, *texts)


def _as_child(
    work: Callable[[], int], folder: Path, streams: tuple[int, int, int], environment: dict[str, str]
) -> None:
    code = 70
    try:
        os.setpgid(0, 0)  # with what it starts itself
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)  # others may have replaced them in this process
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        faulthandler.enable(file=2, all_threads=False)
        os.environ.update(environment)
        os.chdir(folder)
        limit_memory()
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond it fails with an OSError, as on a full disk
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        code = 70
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def limit_memory() -> None:
    """Have this process, which is a child, fail with MemoryError instead of filling the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _ended(child: int, limit: float) -> int | None:
    """The exit code of a child; None where it still runs after so many seconds."""
    until = time.monotonic() + limit
    pause = 0.001
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, by its path, with its size and time of change."""
    found = {}
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(base, name)
            status = os.lstat(path)
            found[os.path.relpath(path, folder)] = (0, 0) if name in folders else (status.st_size, status.st_mtime_ns)
    return found


def damaged(path: Path) -> str | None:
    """Why a file that has its final name is not whole; None where it is, or is of no form that we know."""
    try:
        if path.suffix in (".json",):
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".jsonl":
            for line in path.read_text(encoding="utf-8").splitlines():
                json.loads(line)
        elif path.suffix == ".h5":
            import h5py

            with h5py.File(path) as file:
                list(file)
        elif path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "numpy") as file:
                file.keys()
        elif path.name.endswith(".tmp"):
            return "a temporary file is left behind"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
