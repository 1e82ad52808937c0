"""Kinds of kills: a disturbance (kills, power cuts, full disks, short memory) of a command, which then
runs without it. What must hold afterwards is in docs/development/reliability.md.
"""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from fuzzing.campaign import Generator
from fuzzing.child import End, more_memory
from hypothesis import reject
from hypothesis import strategies as st

from kills import judge, power
from kills.commands import COMMANDS, LIMIT, Words, resumed, start
from kills.judge import Case

MAX_RENAMED = 12  # files that get their names before a command is killed
LEAST_MEMORY, MOST_MEMORY = 1 << 16, 1 << 29  # bytes of address space beyond those of an idle child


def killed(case: Case) -> None:
    """Kill a command one to four times, each time it is run again, then let it finish."""
    words, moments = case.command.words, []
    for _ in range(case.rng.choice([1, 2, 3, 4])):
        seconds, number = (
            round(case.rng.uniform(0.01, case.wanted.seconds), 3),
            case.rng.randint(-MAX_RENAMED, MAX_RENAMED),
        )
        at_a_name = number and case.rng.random() < 0.4
        moments.append(f"{'after' if number > 0 else 'before'} renaming {abs(number)}" if at_a_name else f"{seconds} s")
        case.about = f"killed: {', '.join(moments)}"
        if at_a_name:
            end = start(words, case.work, before=partial(_die_at_a_name, number)).end(LIMIT)
        else:
            child = start(words, case.work)
            time.sleep(seconds)
            child.kill()
            end = child.end(LIMIT)
        if end.code not in (0, -signal.SIGKILL):
            return case.check_end(end)
        case.check_whole(end)
        words = case.command.again(case.command.words, case.work)
    case.check_end(case.command.run(words, case.work))


def _die_at_a_name(number: int) -> None:
    """Let this process be killed right after a file gets its name, the number-th time; negative: right before."""
    left = abs(number)

    def replaced(source: Path, target: str | Path) -> Path:
        nonlocal left
        left -= 1
        if left == 0 and number < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(source, target)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return Path(target)

    Path.replace = replaced  # type: ignore[method-assign]


_histories: dict[str, power.History] = {}
_seen: set[int] = set()  # states


def power_cut(case: Case) -> None:
    """Cut the power of a command at a random moment, then run it again."""
    line = " ".join(case.command.words)
    if line not in _histories:
        end, _histories[line] = power.recorded(case.command.words, case.work)
        if end.code != 0:
            raise RuntimeError(f"{line}, recorded: {end}")
    history = _histories[line]
    case.about, tree = power.some_crash(history, case.rng)
    if (key := hash((line, *sorted(tree.items())))) in _seen:
        reject()  # Hypothesis draws another one
    _seen.add(key)
    power.lay_out(tree, case.work)
    before = history.undisturbed(0)
    new = [f"{path} ({len(data)})" for path, data in sorted(tree.items()) if path not in before and data]
    case.about += f"\nthere: {', '.join(new)}"
    case.check_whole(cached=False)
    case.check_end(case.command.run_again(case.work))


def limited_file_sizes(case: Case) -> None:
    """Limit the size of files to a random number: a write beyond it fails, as on a full disk."""
    sizes = [size for size in case.wanted.sizes if size]
    size = case.rng.choice(sizes) - 1 if case.rng.random() < 0.3 else _log_uniform(case, 1, max(sizes) + 1)
    case.about = f"files of at most {size} bytes"

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with EFBIG
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    _limited(case, lambda words: start(words, case.work, before=limit).end(LIMIT))


def short_memory(case: Case) -> None:
    """Limit the address space to a random number of bytes beyond what the process has at its start."""
    more = _log_uniform(case, LEAST_MEMORY, MOST_MEMORY)
    case.about = f"{more} bytes more of address space"
    _limited(case, lambda words: start(words, case.work, before=lambda: more_memory(more)).end(LIMIT))


def _limited(case: Case, end_of: Callable[[Words], End]) -> None:
    """Run a command within a limit, some trainings from a checkpoint, then without the limit if it was refused."""
    words = case.command.words
    if case.command.again is resumed and case.rng.random() < 0.5:
        child = start(words, case.work)
        time.sleep(case.rng.uniform(0.3, 0.9) * case.wanted.seconds)
        child.kill()
        child.end(LIMIT)
        words = case.command.again(words, case.work)
    step = _last_step(case.work)
    end = end_of(words)
    case.check_whole(end)
    case.require(_last_step(case.work) >= step, "an earlier checkpoint is lost", end)
    case.check_end(case.command.run_again(case.work) if case.note_refusal(end) else end)


def _last_step(work: Path) -> int:
    """Return the step of the last readable checkpoint, or -1 if no checkpoint is readable."""
    from lmtool.training.state import read_state

    steps = [-1]
    for path in (work / "out").glob("state*.safetensors"):
        with suppress(Exception):  # a damaged one is found elsewhere
            steps.append(int(read_state(path).values["progress"]["step"]))
    return max(steps)


def _log_uniform(case: Case, least: int, most: int) -> int:
    return int(math.exp(case.rng.uniform(math.log(least), math.log(most))))


WRITERS = ["preprocess", "counts", "estimation", "nplm", "eval", "convert", "score", "sweep"]
MEMORY = ["preprocess", "counts", "estimation", "tuning", "nplm", "nce", "eval", "score"]
KINDS: dict[str, tuple[Callable[[Case], None], list[str]]] = {  # disturbances, each with its commands
    "": (killed, list(COMMANDS)),
    "power-": (power_cut, [*WRITERS, "ensemble", "tree"]),
    "size-": (limited_file_sizes, WRITERS),
    "memory-": (short_memory, MEMORY),
}


def _check(name: str, disturb: Callable[[Case], None], case: list[int], place: Path) -> list[str]:
    """Disturb a command as the seed in a case says, in an empty folder. Raises Fault."""
    command = COMMANDS[name]
    one = Case(command, judge.fresh(command, place), judge.prepare(name), random.Random(case[0]))
    disturb(one)
    return one.refused


CAMPAIGNS = {
    f"{prefix}{name}": Generator(
        st.tuples(st.integers(0, 1 << 32)), partial(_check, name, disturb), partial(judge.prepare, name)
    )
    for prefix, (disturb, names) in KINDS.items()
    for name in names
}
