"""Every kind of kills, by its name: a disturbance and the command that it disturbs."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fuzzing.campaign import Generator
from hypothesis import strategies as st

from kills import disturbances, judge
from kills.commands import COMMANDS, NETWORKS
from kills.judge import Case

WRITERS = ["preprocess", "counts", "estimation", "nplm", "eval", "convert", "score", "sweep"]
POWER = [*WRITERS, "ensemble", "tree"]
MEMORY = ["preprocess", "counts", "estimation", "tuning", "nplm", "nce", "eval", "score"]
Disturb = Callable[[Case], None]
# Disturbances, each with its commands and what it needs.
KINDS: dict[str, tuple[Disturb, list[str], Callable[[], None]]] = {
    "": (disturbances.killed, list(COMMANDS), lambda: None),
    "checkpoint-": (disturbances.killed_at_a_checkpoint, list(NETWORKS), lambda: None),
    "power-": (disturbances.power_cut, POWER, disturbances.need_strace),
    "size-": (disturbances.limited_file_sizes, WRITERS, lambda: None),
    "full-": (disturbances.full_disk, WRITERS, disturbances.need_mounts),
    "memory-": (disturbances.short_memory, MEMORY, lambda: None),
    "read-only-": (disturbances.read_only, [*POWER, "merge", "report"], disturbances.need_mounts),
    "clock-": (disturbances.wrong_clock, WRITERS, lambda: None),
    "eight-": (disturbances.eight_at_once, ["estimation", "sweep"], lambda: None),
}


def _prepare(name: str, need: Callable[[], None]) -> None:
    need()
    judge.prepare(name)


def _check(name: str, disturb: Disturb, case: list[int], place: Path) -> list[str]:
    """Disturb a command as the seed in a case says, in an empty folder. Raises Fault."""
    command = COMMANDS[name]
    one = Case(command, judge.fresh(command, place), judge.prepare(name), random.Random(case[0]))
    disturb(one)
    return one.refused


CAMPAIGNS = {
    f"{prefix}{name}": Generator(
        st.integers(0, 1 << 32).map(lambda seed: [seed]), partial(_check, name, disturb), partial(_prepare, name, need)
    )
    for prefix, (disturb, names, need) in KINDS.items()
    for name in names
}
