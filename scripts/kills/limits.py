"""Full disks, short memory, read-only folders and wrong clocks; then the same command without them."""

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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from fuzzing.child import End, more_memory

from kills import place
from kills.commands import LIMIT, Command, resumed, start
from kills.judge import Budget, Case, Row, campaign

LEAST_MEMORY, MOST_MEMORY = 1 << 16, 1 << 29  # bytes of address space beyond those of an idle child
DISK = 1 << 30  # bytes of the file system in memory while it is not full
Limited = Callable[[list[str], Case], End]  # runs a line within a limit, which it writes into case.about


def file_sizes(kind: str, command: Command, budget: Budget) -> Row:
    """Limit the size of files to a random number: a write beyond it fails, as on a full disk."""
    work = place.fresh(command)
    command.run(command.words, work)
    sizes = sorted({path.stat().st_size for path in work.rglob("*") if path.is_file()} - {0})

    def limited(words: list[str], case: Case) -> End:
        size = case.rng.choice(sizes) - 1 if case.rng.random() < 0.3 else _log_uniform(case.rng, 1, max(sizes) + 1)
        case.about = f"files of at most {size} bytes"

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with EFBIG
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        return start(words, case.work, before=limit).end(LIMIT)

    return _campaign(kind, command, budget, limited)


def full_disk(kind: str, command: Command, budget: Budget) -> Row:
    """Run in a file system in memory that is full after a random number of bytes."""
    disk = Path.cwd() / "disk"
    disk.mkdir(exist_ok=True)
    with mounted("-t", "tmpfs", "-o", f"size={DISK}", "none", str(disk)) as there:
        if not there:
            return Row(kind)
        work = place.fresh(command, disk)
        before = shutil.disk_usage(disk).used
        command.run(command.words, work)
        needed = shutil.disk_usage(disk).used - before

        def resize(size: int) -> None:
            size = -(-size // resource.getpagesize()) * resource.getpagesize()
            subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)

        def limited(words: list[str], case: Case) -> End:
            free = case.rng.randint(0, max(needed, 1 << 16) // 4096) * 4096
            case.about = f"{free} bytes free"
            resize(shutil.disk_usage(disk).used + free)
            try:
                return start(words, case.work).end(LIMIT)
            finally:
                resize(DISK)

        return _campaign(kind, command, budget, limited, disk)


def short_memory(kind: str, command: Command, budget: Budget) -> Row:
    """Limit the address space to a random number of bytes beyond what the process has at its start."""

    def limited(words: list[str], case: Case) -> End:
        more = _log_uniform(case.rng, LEAST_MEMORY, MOST_MEMORY)
        case.about = f"{more} bytes more of address space"
        return start(words, case.work, before=lambda: more_memory(more)).end(LIMIT)

    return _campaign(kind, command, budget, limited)


def _campaign(kind: str, command: Command, budget: Budget, limited: Limited, top: Path | None = None) -> Row:
    def disturb(case: Case) -> None:
        words = command.words
        if command.again is resumed and case.rng.random() < 0.5:  # some have a checkpoint already
            child = start(words, case.work)
            time.sleep(case.rng.uniform(0.3, 0.9) * case.wanted.seconds)
            child.kill()
            child.end(LIMIT)
            words = command.again(words, case.work)
        step = last_step(case.work)
        end = limited(words, case)
        case.row.cases += 1
        case.check_whole(end)
        if end.refusal is not None:
            case.row.refusal(end.refusal)
        if last_step(case.work) < step:
            case.fault("an earlier checkpoint is lost", end)
        case.check_end(command.run_again(case.work) if end.refusal is not None else end)

    return campaign(kind, command, budget, disturb, top)


def last_step(work: Path) -> int:
    """Return the step of the last readable checkpoint; -1 if there is none."""
    steps = [-1]
    for path in (work / "out").glob("state*.safetensors"):
        from lmtool.training.state import read_state

        with suppress(Exception):  # a damaged one is found elsewhere
            steps.append(int(read_state(path).values["progress"]["step"]))
    return max(steps)


def _log_uniform(rng: random.Random, least: int, most: int) -> int:
    return int(math.exp(rng.uniform(math.log(least), math.log(most))))


def read_only(kind: str, command: Command, budget: Budget) -> Row:
    """Make the run folder, the stores, or both read-only; then run the same command with write access."""
    names = [".", "out", "stores"]

    def disturb(case: Case) -> None:
        folder = case.work / names[case.row.cases % 3]
        folder.mkdir(exist_ok=True)
        case.about = f"read-only: {folder.name}"
        case.row.cases += 1
        with mounted("--bind", str(folder), str(folder)) as there:
            if not there:
                return
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True, capture_output=True)
            end = start(command.words, case.work).end(LIMIT)
        case.check_whole(end)
        if end.refusal is not None:
            case.row.refusal(end.refusal)
            if "read-only" not in end.refusal.lower():
                case.fault(f"a refusal without the reason: {end.refusal}")
            end = command.run(command.words, case.work)
        case.check_end(end)

    return campaign(kind, command, budget._replace(most=min(budget.most or 3, 3)), disturb)


@contextmanager
def mounted(*words: str) -> Iterator[bool]:
    """Mount something for this block; False if that is not possible here."""
    done = subprocess.run(["mount", *words], capture_output=True)
    if done.returncode != 0:
        print("left out: nothing can be mounted here", file=sys.stderr)
    with ExitStack() as stack:
        if done.returncode == 0:
            stack.callback(lambda: subprocess.run(["umount", "-l", words[-1]], check=True))
        yield done.returncode == 0


def clocks(kind: str, command: Command, budget: Budget) -> Row:
    """Give files times in the future and before 1970, or let the clock jump back and forth at every look."""

    def disturb(case: Case) -> None:
        how = case.rng.choice(["future", "before 1970", "any", "jumps"])
        now, number = time.time(), case.rng.random()
        times = {"future": [now + 1e8], "before 1970": [-1e8], "any": [-1e8, 0, 1, now, now + 3600, now + 1e9]}
        for path in case.work.rglob("*") if how in times else ():
            moment = case.rng.choice(times[how])
            os.utime(path, (moment, moment))
        before = (lambda: _let_clock_jump(number)) if how == "jumps" else None
        end = start(command.words, case.work, before=before).end(LIMIT)
        case.about = f"clock: {how}"
        case.row.cases += 1
        case.check_whole(end)
        if how != "jumps":  # a store records when its files were last changed
            case.command = replace(command, made=tuple(name for name in command.made if name != "stores"))
            bits = {path: bits for path, bits in case.wanted.bits.items() if not path.startswith("stores/")}
            case.wanted = case.wanted._replace(bits=bits)
        case.check_end(end)

    return campaign(kind, command, budget, disturb)


def _let_clock_jump(number: float) -> None:
    """Make time.time jump by up to a year at every call."""
    rng, real = random.Random(number), time.time

    def shown() -> float:
        return real() + rng.uniform(-3e7, 3e7)

    time.time = shown
    time.time_ns = lambda: int(shown() * 1e9)
