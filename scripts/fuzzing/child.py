"""Run a case in a forked child of this process, which has imported and compiled everything: hundredths of a second."""

from __future__ import annotations

import faulthandler
import fcntl
import io
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

MEMORY = 3 << 30  # bytes of address space that a case may take beyond this process's
FILE_SIZE = 64 << 20  # maximum bytes of one file of a case
OUTPUT = 1 << 20  # bytes kept of each stream of a child
PROGRESS = re.compile(r" *\d+ %  epoch ")  # lines of a training without a terminal


@dataclass(frozen=True)
class End:
    """How a child ended.

    code: its exit code, negative for a signal, None if it had to be killed. interrupted: whether it exceeded its limit
    and was sent SIGINT.
    """

    code: int | None
    out: str
    err: str
    interrupted: bool = False

    @property
    def refusal(self) -> str | None:
        """The single error line of an exit with code 2, or of the first failed job of a sweep; None for other ends."""
        lines = [line for line in self.err.splitlines() if not PROGRESS.match(line)]
        said = self.out + self.err
        if self.code in (1, 2) and ("also in" in said or "Launching " in said) and "Traceback" not in said:
            return next((line for line in lines if line.startswith("lmtool: ")), None)
        is_one = self.code == 2 and len(lines) == 1 and lines[0].startswith("lmtool: ")
        return lines[0] if is_one else None

    @property
    def last_line(self) -> str:
        return self.err.strip().rpartition("\n")[2] or f"exit code {self.code}"

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out[-500:]}{self.err[-3000:]}"


@dataclass
class Child:
    """A running child, whose process group has its number, and the reading ends of its output streams."""

    number: int
    streams: tuple[int, ...]

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, signal.SIGKILL)

    def end(self, limit: float, grace: float = 0.0) -> End:
        """Wait for its end: after `limit` seconds send SIGINT if there is a grace period, after that SIGKILL."""
        texts = (bytearray(), bytearray())
        code = self._wait(limit, texts)
        interrupted = code is None
        if interrupted and grace:
            os.kill(self.number, signal.SIGINT)
            code = self._wait(grace, texts)
        if code is None:
            self.kill()
            with suppress(ChildProcessError):
                os.waitpid(self.number, 0)
        self.kill()  # what it may have started itself
        self._drain(texts)
        for stream in self.streams:
            os.close(stream)
        return End(code, *(bytes(text[:OUTPUT]).decode("utf-8", "replace") for text in texts), interrupted)

    def _wait(self, limit: float, texts: tuple[bytearray, bytearray]) -> int | None:
        until, pause = time.monotonic() + limit, 0.001
        while True:
            ended, status = os.waitpid(self.number, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > until:
                return None
            self._drain(texts)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def _drain(self, texts: tuple[bytearray, bytearray]) -> None:
        for stream, text in zip(self.streams, texts, strict=True):
            with suppress(BlockingIOError):
                while part := os.read(stream, 1 << 16):
                    text += part


Call = Callable[[], object]


def start(
    work: Callable[[], int], folder: Path, *, before: Call | None = None, environment: dict[str, str] | None = None
) -> Child:
    """Start `work` in a child within `folder`; its exit code is what `work` returns, or 70 if it raises.

    before: called first in the child, e.g. to set limits.
    """
    reading, writing = zip(*(os.pipe() for _ in range(2)), strict=True)  # not files: limits of files do not apply
    for stream in reading:
        os.set_blocking(stream, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):  # a command need not wait to be read
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, OUTPUT)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _as_child(work, folder, writing, before, environment or {})
    for stream in writing:
        os.close(stream)
    with suppress(OSError):  # the child does it too, whichever comes first
        os.setpgid(child, child)
    return Child(child, reading)


def forked(
    work: Callable[[], int],
    folder: Path,
    *,
    limit: float,
    grace: float = 0.0,
    environment: dict[str, str] | None = None,
) -> End:
    """Run `work` in a child within `folder` to its end, with limits of memory and of the size of a file."""
    return start(work, folder, before=_limit_resources, environment=environment).end(limit, grace)


def _as_child(
    work: Callable[[], int], folder: Path, streams: tuple[int, ...], before: Call | None, environment: dict[str, str]
) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
            os.dup2(stream, number)
        # Others may have replaced them in this process.
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")
        )
        faulthandler.enable(file=2, all_threads=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.dont_write_bytecode = True  # Python would keep a compiled module that a full disk cuts short
        os.environ.update(environment)
        os.chdir(folder)
        if before is not None:
            before()
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _limit_resources() -> None:
    tempfile.tempdir = None  # where the environment says
    more_memory(MEMORY)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond it fails with an OSError, as on a full disk


def more_memory(size: int) -> None:
    """Limit this process to `size` bytes of address space beyond its present use."""
    if Path("/proc/self/statm").exists():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + size
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def draw_no_curves() -> None:
    """Let trainings of this process draw no curves, which would take longer than everything else."""
    from lmtool.commands import _train_neural

    _train_neural.can_plot = lambda: False


def command_line(words: list[str]) -> int:
    from lmtool.cli.command_line import main

    draw_no_curves()
    return main(words)


def quietly(words: list[str], codes: tuple[int, ...] = (0,)) -> None:
    """Run a command line in this process. Raises RuntimeError with its output unless it ends with one of the codes."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = command_line(words)
    if code not in codes:
        raise RuntimeError(f"{' '.join(words)}\n{said.getvalue()}")


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file and folder below a folder, by path, with the size and time of change of files."""
    found = {}
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(base, name)
            status = os.lstat(path)
            found[os.path.relpath(path, folder)] = (0, 0) if name in folders else (status.st_size, status.st_mtime_ns)
    return found


def damaged(path: Path) -> str | None:
    """Return why a file with its final name is not whole; None if it is, or is of no known format."""
    try:
        match path.suffix:
            case ".json":
                json.loads(path.read_text(encoding="utf-8"))
            case ".jsonl":
                for line in path.read_text(encoding="utf-8").splitlines():
                    json.loads(line)
            case ".h5":
                import h5py

                with h5py.File(path) as file:
                    list(file)
            case ".safetensors" if path.name.startswith("state"):
                from lmtool.training.state import read_state

                read_state(path)
            case ".safetensors":
                from safetensors import safe_open

                with safe_open(path, "numpy") as file:
                    file.keys()
            case ".tmp":
                return "a temporary file is left behind"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
