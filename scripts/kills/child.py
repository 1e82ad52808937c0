"""A command line in a forked child of this process, which has imported and compiled everything: about half a second."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT = 120.0  # seconds, of one or two that a command takes; then it is said to hang
PROGRESS = re.compile(r" *\d+ %  epoch ")  # lines of a training where no terminal shows a bar


@dataclass(frozen=True)
class End:
    """How a child ended. code: its exit code, below 0 by a signal; None where it did not end by itself."""

    code: int | None
    out: str
    err: str

    @property
    def refusal(self) -> str | None:
        """The one line of an exit with code 2, or of the first failed job of a sweep; None for any other end."""
        lines = [line for line in self.err.splitlines() if not PROGRESS.match(line)]
        said = self.out + self.err
        if self.code in (1, 2) and ("also in " in said or "Launching " in said) and "Traceback" not in said:
            return next((line for line in lines if line.startswith("lmtool: ")), None)
        is_one = self.code == 2 and len(lines) == 1 and lines[0].startswith("lmtool: ")
        return lines[0] if is_one else None

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out[-500:]}{self.err[-3000:]}"


@dataclass
class Child:
    """A running child, whose process group has its number."""

    number: int
    streams: tuple[int, int]

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal to its whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.number, signal_number)

    def end(self, limit: float = LIMIT) -> End:
        """Wait for it; one that runs for longer than `limit` seconds is killed."""
        until = time.monotonic() + limit
        code: int | None = None
        while True:
            ended, status = os.waitpid(self.number, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > until:
                self.kill()
                os.waitpid(self.number, 0)
                break
            time.sleep(0.002)
        self.kill()  # what it may have started itself
        return End(code, *(_said(stream) for stream in self.streams))


def start(
    words: list[str],
    folder: Path,
    *,
    before: Callable[[], None] | None = None,
    environment: dict[str, str] | None = None,
) -> Child:
    """Start a command line within a folder. before: what the child does first, such as setting limits."""
    reading, writing = zip(*(_pipe() for _ in range(2)), strict=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _as_child(words, folder, writing, before, environment or {})
    for handle in writing:
        os.close(handle)
    with suppress(OSError):  # the child does it too, whoever comes first
        os.setpgid(child, child)
    return Child(child, reading)


def run(words: list[str], folder: Path, *, before: Callable[[], None] | None = None, limit: float = LIMIT) -> End:
    """Run a command line within a folder to its end."""
    return start(words, folder, before=before).end(limit)


def _pipe() -> tuple[int, int]:
    """A pipe for what a child says: unlike a file it has no part in limits of files, and takes a MiB at once."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(reading, False)
    return reading, writing


def _said(stream: int) -> str:
    """All that has come through a pipe, which is closed; a process that outlives its parent may still hold it."""
    parts = []
    with suppress(BlockingIOError):
        while part := os.read(stream, 1 << 20):
            parts.append(part)
    os.close(stream)
    return b"".join(parts).decode("utf-8", "replace")


def command_line(words: list[str]) -> int:
    """lmtool's command line without the picture of a training's curves, which would take longer than all else."""
    from lmtool.cli.command_line import main
    from lmtool.commands import train_neural

    train_neural.can_plot = lambda: False
    return main(words)


def _as_child(
    words: list[str],
    folder: Path,
    streams: tuple[int, ...],
    before: Callable[[], None] | None,
    environment: dict[str, str],
) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        faulthandler.enable(file=2, all_threads=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ.update(environment)
        os.chdir(folder)
        if before is not None:
            before()
        code = command_line(words)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
