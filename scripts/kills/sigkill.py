"""SIGKILL at random moments, perhaps again after the command was run again, then the same command or resume=."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

from kills import place
from kills.child import LIMIT, End, start
from kills.commands import Command
from kills.judge import Row, Undisturbed, check_end, check_whole, finish, undisturbed


def campaign(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """Kill a command for so many seconds, or `most` times."""
    row, rng = Row(command.name), random.Random(seed)
    wanted = undisturbed(command)
    begun = time.monotonic()
    while time.monotonic() < begun + seconds and (most is None or row.cases < most):
        _one(row, command, wanted, rng)
    row.seconds = time.monotonic() - begun
    return row


def _one(row: Row, command: Command, wanted: Undisturbed, rng: random.Random) -> None:
    """A command that is killed one to four times and then left alone."""
    work, words, moments = place.fresh(command), command.words, []
    for _ in range(rng.choice([1, 2, 3, 4])):
        moments.append(round(rng.uniform(0.01, wanted.seconds), 3))
        end = _killed(command, words, work, moments[-1], rng)
        context = f"{' '.join(command.words)}\nkilled after {moments} seconds"
        if end.code == -signal.SIGKILL:
            row.cases += 1
            check_whole(row, work, f"{context}\n{end}")
        elif end.code == 1 and command.is_slow:
            row.cases += 1  # a job of a sweep died, and its table says so
            check_whole(row, work, f"{context}\n{end}")
        elif end.code != 0:
            check_end(row, command, work, end, wanted, context)
            return
        words = command.again(command.words, work)
    check_end(row, command, work, finish(command, words, work), wanted, context)


def _killed(command: Command, words: list[str], work: Path, moment: float, rng: random.Random) -> End:
    """Run a line and kill it after so many seconds: all of it, or, where it has several processes, one of them."""
    if command.ranks > 1:
        from kills.ranks import run_ranks

        return run_ranks(words, work, command.ranks, (rng.randrange(command.ranks), moment))
    child = start(words, work)
    time.sleep(moment)
    if not command.is_slow:
        child.kill()
        return child.end()
    victim = rng.choice([child.number, *descendants(child.number)])
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return child.end(LIMIT)


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, waiting = [], [process]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found
