"""SIGKILL at random moments, perhaps again after the command was run again; and eight processes at once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from fuzzing.child import End

from kills.commands import LIMIT, Command, run_ranks, start
from kills.judge import Budget, Case, Row, campaign

AT_ONCE = 8


def one_to_four_times(kind: str, command: Command, budget: Budget) -> Row:
    """Kill a command one to four times, each time it is run again, then let it finish."""

    def disturb(case: Case) -> None:
        words, moments = command.words, []
        for _ in range(case.rng.choice([1, 2, 3, 4])):
            moments.append(round(case.rng.uniform(0.01, case.wanted.seconds), 3))
            case.about = f"killed after {moments} seconds"
            end = _killed(command, words, case.work, moments[-1], case.rng)
            if end.code == -signal.SIGKILL or (end.code == 1 and command.is_slow):  # 1: one job of a sweep was killed
                case.row.cases += 1
                case.check_whole(end)
            elif end.code != 0:
                case.check_end(end)
                return
            words = command.again(command.words, case.work)
        case.check_end(command.run(words, case.work))

    return campaign(kind, command, budget, disturb)


def _killed(command: Command, words: list[str], work: Path, moment: float, rng: random.Random) -> End:
    """Run a line and kill it after `moment` seconds: all of it, or one process if it has several."""
    if command.ranks > 1:
        return run_ranks(words, work, command.ranks, (rng.randrange(command.ranks), moment))
    child = start(words, work)
    time.sleep(moment)
    if not command.is_slow:
        child.kill()
    else:
        with suppress(ProcessLookupError):
            os.kill(rng.choice([child.number, *descendants(child.number)]), signal.SIGKILL)
    return child.end(LIMIT)


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
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


def eight_at_once(kind: str, command: Command, budget: Budget) -> Row:
    """Start eight runs that share a store which does not exist yet, or eight times one sweep; kill some; run again."""
    is_sweep = "-m" in command.words

    def line(number: int) -> list[str]:
        folder = "out" if is_sweep else f"out{number}"
        return [f"hydra.run.dir={folder}" if word.startswith("hydra.run.dir=") else word for word in command.words]

    def disturb(case: Case) -> None:
        if not is_sweep:
            shutil.rmtree(case.work / "stores")
        children = [start(line(number), case.work) for number in range(AT_ONCE)]
        killed = case.rng.sample(range(AT_ONCE), case.rng.choice([0, 0, 1, 3]))
        for number in killed:
            time.sleep(case.rng.uniform(0, case.wanted.seconds))
            children[number].kill()
        case.about = f"eight at once, {len(killed)} of them killed"
        ends = [child.end(LIMIT) for child in children]
        case.row.cases += AT_ONCE
        case.check_whole()
        case.row.whole += AT_ONCE - 1 if not case.row.found else 0
        for number, end in enumerate(ends):
            if end.refusal is not None:
                case.row.refusal(end.refusal)
            elif end.code not in (0, -signal.SIGKILL):
                case.fault(f"exit code {end.code}", end)
            elif not is_sweep:
                again = end if end.code == 0 else command.run(line(number), case.work)
                shutil.rmtree(case.work / "out", ignore_errors=True)
                if (case.work / f"out{number}").exists():  # judged as if it had been the only one
                    (case.work / f"out{number}").rename(case.work / "out")
                case.check_end(again)
        if is_sweep:
            case.check_end(command.run_again(case.work))

    return campaign(kind, command, budget, disturb)
