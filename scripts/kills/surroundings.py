"""Folders that can only be read, clocks that jump, and eight processes at once."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kills import place
from kills.child import run, start
from kills.commands import Command
from kills.judge import Row, Undisturbed, check_end, check_whole, finish, undisturbed

AT_ONCE = 8


def read_only(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """The folder of the run, of the stores, or both, can only be read; then the same command where they can be
    written.
    """
    row, wanted = Row(f"read-only {command.name}"), undisturbed(command)
    begun = time.monotonic()
    for names in (["."], ["out"], ["stores"]):
        work = place.fresh(command)
        for name in names:
            (work / name).mkdir(exist_ok=True)
        with _only_read([work / name for name in names]) as mounted:
            if not mounted:
                print("no read-only folders: nothing can be mounted here", file=sys.stderr)
                return row
            end = run(command.words, work)
        row.cases += 1
        context = f"{' '.join(command.words)}\nread-only: {names[0]}"
        check_whole(row, work, context)
        if end.refusal is not None:
            row.refusal(end.refusal)
            if not any(word in end.refusal for word in ("Read-only", "read-only")):
                row.fault(f"a refusal without the reason: {end.refusal}", context)
            end = finish(command, command.words, work)
        check_end(row, command, work, end, wanted, context)
    row.seconds = time.monotonic() - begun
    return row


def clocks(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """Files of the future and of before 1970, and a clock that jumps back and forth at every look."""
    row, rng, wanted = Row(f"clock {command.name}"), random.Random(seed), undisturbed(command)
    # A store keeps when its files were last changed.
    bits = {path: content for path, content in wanted.bits.items() if not path.startswith("stores/")}
    made = tuple(name for name in command.made if name != "stores")
    without_stores = replace(command, made=made), replace(wanted, bits=bits)
    begun = time.monotonic()
    while time.monotonic() < begun + seconds and (most is None or row.cases < most):
        work = place.fresh(command)
        kind = rng.choice(["future", "before 1970", "any", "jumps"])
        now = time.time()
        times = {"future": [now + 1e8], "before 1970": [-1e8], "any": [-1e8, 0, 1, now, now + 3600, now + 1e9]}
        for path in work.rglob("*") if kind in times else ():
            moment = rng.choice(times[kind])
            os.utime(path, (moment, moment))
        number = rng.random()
        end = run(command.words, work, before=_jumping(number) if kind == "jumps" else None)
        row.cases += 1
        context = f"{' '.join(command.words)}\nclock: {kind}"
        check_whole(row, work, context)
        judged = (command, wanted) if kind == "jumps" else without_stores
        check_end(row, judged[0], work, end, judged[1], context)
    row.seconds = time.monotonic() - begun
    return row


def eight(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """Eight processes with a run each and one store, which none has made yet, or with one sweep; some are killed. Then
    each line again.
    """
    row, rng = Row(f"eight {command.name}"), random.Random(seed)
    is_sweep = "-m" in command.words
    wanted, begun = undisturbed(command), time.monotonic()
    while time.monotonic() < begun + seconds and (most is None or row.cases < most):
        work = place.fresh(command)
        if not is_sweep:
            shutil.rmtree(work / "stores")
        lines = [command.words if is_sweep else _into(command.words, f"out{k}") for k in range(AT_ONCE)]
        children = [start(line, work) for line in lines]
        killed = rng.sample(range(AT_ONCE), rng.choice([0, 0, 1, 3]))
        for number in killed:
            time.sleep(rng.uniform(0, wanted.seconds))
            children[number].kill()
        ends = [child.end() for child in children]
        row.cases += AT_ONCE
        context = f"{' '.join(command.words)}\neight at once, {len(killed)} of them killed"
        check_whole(row, work, context)
        row.whole += AT_ONCE - 1 if not row.found else 0
        for number, end in enumerate(ends):
            if end.refusal is not None:
                row.refusal(end.refusal)
            elif end.code not in (0, -9):
                row.fault(f"exit code {end.code}", f"{context}\n{end}")
            elif not is_sweep:
                if end.code == -9:
                    end = run(lines[number], work)
                _check_one(row, command, work, f"out{number}", end, wanted, context)
        if is_sweep:
            end = finish(command, command.again(command.words, work), work)
            check_end(row, command, work, end, wanted, context)
    row.seconds = time.monotonic() - begun
    return row


def _check_one(
    row: Row, command: Command, work: Path, folder: str, end: object, wanted: Undisturbed, context: str
) -> None:
    """Look at one of several runs as if it had been the only one."""
    from kills.child import End

    assert isinstance(end, End)
    shutil.rmtree(work / "out", ignore_errors=True)
    if (work / folder).exists():
        (work / folder).rename(work / "out")
    check_end(row, command, work, end, wanted, context)


def _into(words: list[str], folder: str) -> list[str]:
    return [f"hydra.run.dir={folder}" if word.startswith("hydra.run.dir=") else word for word in words]


def _jumping(number: float) -> Callable[[], None]:
    """Have time.time jump by up to a year at every call."""

    def jump() -> None:
        rng, real = random.Random(number), time.time

        def shown() -> float:
            return real() + rng.uniform(-3e7, 3e7)

        time.time = shown
        time.time_ns = lambda: int(shown() * 1e9)

    return jump


@contextmanager
def _only_read(folders: list[Path]) -> Iterator[bool]:
    """Have folders that can only be read in this block; False where they cannot be had."""
    mounted: list[Path] = []
    try:
        for folder in folders:
            done = subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True)
            if done.returncode != 0:
                yield False
                return
            mounted.append(folder)
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True, capture_output=True)
        yield True
    finally:
        for folder in reversed(mounted):
            subprocess.run(["umount", "-l", str(folder)], check=True)
