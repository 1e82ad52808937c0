"""A command whose disk is full, or whose memory is short, at a random size; then the same command without the limit."""

from __future__ import annotations

import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kills import place
from kills.child import End, run, start
from kills.commands import Command, resumed
from kills.judge import Row, check_end, check_whole, finish, undisturbed

LEAST_MEMORY, MOST_MEMORY = 1 << 16, 1 << 29  # bytes beyond what a child has that has done nothing yet
Limited = Callable[[list[str], Path, random.Random], tuple[End, str]]


def file_sizes(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """No file may become larger than a random size: a write beyond it fails, as on a full disk."""
    sizes = _sizes(command)

    def limited(words: list[str], work: Path, rng: random.Random) -> tuple[End, str]:
        size = rng.choice(sizes) - 1 if rng.random() < 0.3 else _log_uniform(rng, 1, max(sizes) + 1)

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with EFBIG
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        return run(words, work, before=limit), f"files of at most {size} bytes"

    return _campaign("file size", command, limited, seconds, seed, most)


def full_disk(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """A file system of its own, in memory, that is full after a random number of bytes."""
    with _disk() as disk:
        if disk is None:
            print("no full disks: nothing can be mounted here", file=sys.stderr)
            return Row(f"full disk {command.name}")
        place.fresh(command, disk)
        before = shutil.disk_usage(disk).used
        finish(command, command.words, disk / place.WORK)
        needed = shutil.disk_usage(disk).used - before

        def limited(words: list[str], work: Path, rng: random.Random) -> tuple[End, str]:
            free = rng.randint(0, max(needed, 1 << 16) // 4096) * 4096
            _resize(disk, shutil.disk_usage(disk).used + free)
            try:
                return run(words, work), f"{free} bytes free"
            finally:
                _resize(disk, 1 << 30)

        return _campaign("full disk", command, limited, seconds, seed, most, disk)


def short_memory(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """A random number of bytes of address space beyond what the process has at its start."""

    def limited(words: list[str], work: Path, rng: random.Random) -> tuple[End, str]:
        more = _log_uniform(rng, LEAST_MEMORY, MOST_MEMORY)

        def limit() -> None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            size = pages * resource.getpagesize() + more
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        return run(words, work, before=limit), f"{more} bytes more of address space"

    return _campaign("memory", command, limited, seconds, seed, most)


def _campaign(
    what: str,
    command: Command,
    limited: Limited,
    seconds: float,
    seed: int,
    most: int | None,
    top: Path | None = None,
) -> Row:
    row, rng = Row(f"{what} {command.name}"), random.Random(seed)
    wanted = undisturbed(command, top)
    begun = time.monotonic()
    while time.monotonic() < begun + seconds and (most is None or row.cases < most):
        work, words = place.fresh(command, top), command.words
        if command.again is resumed and rng.random() < 0.5:  # some have a checkpoint already
            words = _begun(command, work, rng.uniform(0.3, 0.9) * wanted.seconds)
        step = last_step(work)
        end, size = limited(words, work, rng)
        row.cases += 1
        context = f"{' '.join(words)}\n{size}"
        check_whole(row, work, f"{context}\n{end}")
        if end.code != 0 and end.refusal is None:
            check_end(row, command, work, end, wanted, context)
            continue
        if end.refusal is not None:
            row.refusal(end.refusal)
        if last_step(work) < step:
            row.fault("an earlier checkpoint is lost", f"{context}\n{end}")
        if end.code != 0:
            refused, row.refused = row.refused, 0
            end = finish(command, command.again(command.words, work), work)
            row.refused = refused
        check_end(row, command, work, end, wanted, context)
    row.seconds = time.monotonic() - begun
    return row


def _begun(command: Command, work: Path, moment: float) -> list[str]:
    """Kill a training after so many seconds; the line that resumes it."""
    child = start(command.words, work)
    time.sleep(moment)
    child.kill()
    child.end()
    return command.again(command.words, work)


def last_step(work: Path) -> int:
    """The step of the last checkpoint that can be read; -1 where there is none."""
    if not (work / "out").is_dir() or not list((work / "out").glob("state*.safetensors")):
        return -1
    from lmtool.training.state import read_state

    steps = [-1]
    for path in (work / "out").glob("state*.safetensors"):
        with suppress(Exception):  # a damaged one is found elsewhere
            steps.append(int(read_state(path).values["progress"]["step"]))
    return max(steps)


def _sizes(command: Command) -> list[int]:
    """The sizes of the files that a command makes."""
    work = place.fresh(command)
    before = {path for path in work.rglob("*") if path.is_file()}
    finish(command, command.words, work)
    return sorted({path.stat().st_size for path in work.rglob("*") if path.is_file()} - {0} or {1}) if before else [1]


def _log_uniform(rng: random.Random, least: int, most: int) -> int:
    return int(math.exp(rng.uniform(math.log(least), math.log(most))))


@contextmanager
def _disk() -> Iterator[Path | None]:
    """A file system in memory; None where it cannot be mounted."""
    disk = Path.cwd() / "disk"
    disk.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={1 << 30}", "none", str(disk)], capture_output=True)
    if done.returncode != 0:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _resize(disk: Path, size: int) -> None:
    size = -(-size // os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PAGE_SIZE")
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
