"""A campaign and what must hold in it: a command that is run again ends with the right bits, or with one line."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fuzzing.child import End

from kills import place
from kills.commands import Command


class Budget(NamedTuple):
    """How long a campaign lasts: seconds and, if given, the maximum number of cases. seed: of its random numbers."""

    seconds: float
    seed: int
    most: int | None = None


@dataclass
class Row:
    """A row of the table.

    cases: number of kills, crash states or limits. whole: how often all files with their final names could be read;
    same: how often the end had the wanted bits; refused: how often it was one line. found: faults, each counted.
    """

    kind: str
    cases: int = 0
    whole: int = 0
    same: int = 0
    refused: int = 0
    seconds: float = 0.0
    found: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)  # the single lines

    def refusal(self, line: str) -> None:
        """Count an end with one line."""
        self.refused += 1
        self.said[_without_names(line)] += 1

    def fault(self, signature: str, report: str) -> None:
        """Count a fault; print the first of each signature."""
        signature = _without_names(signature)
        if not self.found[signature]:
            print(f"found by {self.kind}: {signature}")
            print("\n".join(f"    {line}" for line in report.strip().splitlines()[-14:]), flush=True)
        self.found[signature] += 1


class Undisturbed(NamedTuple):
    """The bits that an undisturbed command makes, and how many seconds it takes."""

    bits: dict[str, bytes]
    seconds: float


@dataclass
class Case:
    """One disturbance of a command in its folder. about: says in a report what was done."""

    row: Row
    command: Command
    work: Path
    wanted: Undisturbed
    rng: random.Random
    about: str = ""

    def check_whole(self, end: End | None = None, *, cached: bool = True) -> None:
        """Check every file that has its final name. cached: also cached counts, which are not synced."""
        reason = place.not_whole(self.work, cached=cached)
        if reason is None:
            self.row.whole += 1
        else:
            self.row.fault(f"not whole: {reason}", self._context(end))

    def check_end(self, end: End) -> None:
        """Check the end of the command that was run again."""
        bits = place.bits(self.command, self.work) if end.code in (0, 2) else {}
        problem = place.different(self.wanted.bits, bits) if end.code in (0, 2) else None
        whole_with = self.command.whole_with
        if end.code == 0 and problem is None:
            self.row.same += 1
            if left := place.left_behind(self.work):
                self.row.fault(f"left behind: {left}", self._context())
        elif end.code == 0:
            self.row.fault(f"other bits: it {problem}", self._context(end))
        elif end.refusal is not None:
            self.row.refusal(end.refusal)
            if whole_with is not None and (self.work / whole_with).exists() and problem is not None:
                self.row.fault(f"finished, but not whole: it {problem}", self._context(end))
        else:
            self.row.fault(f"exit code {end.code}: {end.last_line}", self._context(end))

    def fault(self, signature: str, end: End | None = None) -> None:
        """Count a fault of this case."""
        self.row.fault(signature, self._context(end))

    def _context(self, end: End | None = None) -> str:
        return f"{' '.join(self.command.words)}\n{self.about}\n{end or ''}"


def campaign(
    kind: str, command: Command, budget: Budget, disturb: Callable[[Case], None], top: Path | None = None
) -> Row:
    """Disturb a command repeatedly, each time in a fresh folder in `top` (default: this one).

    disturb: raises StopIteration if there is nothing left to try.
    """
    row, rng = Row(kind), random.Random(budget.seed)
    wanted = undisturbed(command, top)
    begun = time.monotonic()
    while time.monotonic() < begun + budget.seconds and (budget.most is None or row.cases < budget.most):
        try:
            disturb(Case(row, command, place.fresh(command, top), wanted, rng))
        except StopIteration:
            break
    row.seconds = time.monotonic() - begun
    return row


def undisturbed(command: Command, top: Path | None = None) -> Undisturbed:
    """Run a command twice. Raises RuntimeError if it fails or the two differ: then there is nothing to compare."""
    outcomes, seconds = [], []
    for _ in range(2):
        work = place.fresh(command, top)
        begun = time.monotonic()
        end = command.run(command.words, work)
        seconds.append(time.monotonic() - begun)
        if end.code != 0:
            raise RuntimeError(f"{' '.join(command.words)}: {end}")
        outcomes.append(place.bits(command, work))
    problem = place.different(*outcomes)
    if problem is not None or not outcomes[0]:
        raise RuntimeError(f"{' '.join(command.words)}, undisturbed: the second {problem or 'has made nothing'}")
    return Undisturbed(outcomes[0], min(seconds))


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown, with their sum."""
    lines = ["| kind | cases | whole files | same bits | one line | found | seconds |", "|---|---|---|---|---|---|---|"]
    figures = [(row.cases, row.whole, row.same, row.refused, len(row.found), row.seconds) for row in rows]
    sums = tuple(map(sum, zip(*figures, strict=True)))
    for name, values in zip([*(row.kind for row in rows), "in all"], [*figures, sums], strict=True):
        lines.append(f"| {name} | {' | '.join(f'{value:,.0f}' for value in values)} |")
    return "\n".join(lines)


def _without_names(signature: str) -> str:
    """Return a signature without process numbers and the folders of a case."""
    return re.sub(r"/\S*/|0x[0-9a-f]+|\b\d{3,}\b", "_", signature)[:160]
