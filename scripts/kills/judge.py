"""What must hold of a command that is run again: the bits of one that nobody disturbed, or one line."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kills import place
from kills.child import End, run
from kills.commands import Command


@dataclass
class Row:
    """A row of the table. cases: kills, crash states or limits. whole: how often all files with their final names could
    be read; same: how often the end had the wanted bits; refused: how often it was one line. found: what must not
    be, with an example of each.
    """

    kind: str
    cases: int = 0
    whole: int = 0
    same: int = 0
    refused: int = 0
    seconds: float = 0.0
    found: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)  # the one lines

    def refusal(self, line: str) -> None:
        """Count an end with one line."""
        self.refused += 1
        self.said[_without_names(line)] += 1

    def fault(self, signature: str, report: str) -> None:
        """Note what must not be; the first of each signature is printed."""
        signature = _without_names(signature)
        if not self.found[signature]:
            print(f"found by {self.kind}: {signature}")
            print("\n".join(f"    {line}" for line in report.strip().splitlines()[-14:]), flush=True)
        self.found[signature] += 1


@dataclass(frozen=True)
class Undisturbed:
    """A command that nobody disturbed: the bits of what it makes, and how many seconds it takes."""

    bits: dict[str, bytes]
    seconds: float


def undisturbed(command: Command, top: Path | None = None) -> Undisturbed:
    """Run a command twice, in `top` or in this folder. Raises RuntimeError where it fails or the two differ: then there
    is nothing to compare.
    """
    outcomes, seconds = [], []
    for _ in range(2):
        work = place.fresh(command, top)
        begun = time.monotonic()
        end = finish(command, command.words, work)
        seconds.append(time.monotonic() - begun)
        if end.code != 0:
            raise RuntimeError(f"{command.name}: {end}")
        outcomes.append(place.bits(command, work))
    problem = place.different(*outcomes)
    if problem is not None or not outcomes[0]:
        raise RuntimeError(f"{command.name} without any kill: the second {problem or 'has made nothing'}")
    return Undisturbed(outcomes[0], min(seconds))


def finish(command: Command, words: list[str], work: Path) -> End:
    """Run a line to its end, in as many processes as the command has."""
    if command.ranks == 1:
        return run(words, work)
    from kills.ranks import run_ranks

    return run_ranks(words, work, command.ranks)


def check_whole(row: Row, work: Path, context: str, *, cached: bool = True) -> None:
    """Look at every file that has its final name. cached: at counts that are kept to save time, too."""
    reason = place.not_whole(work, cached=cached)
    if reason is None:
        row.whole += 1
    else:
        row.fault(f"not whole: {reason}", context)


def check_end(row: Row, command: Command, work: Path, end: End, wanted: Undisturbed, context: str) -> None:
    """Look at the end of the command that was run again."""
    problem = place.different(wanted.bits, place.bits(command, work)) if end.code in (0, 2) else None
    if end.code == 0 and problem is None:
        row.same += 1
        left = place.left_behind(work)
        if left is not None:
            row.fault(f"left behind: {left}", context)
    elif end.code == 0:
        row.fault(f"other bits: it {problem}", f"{context}\n{end}")
    elif end.refusal is not None:
        row.refusal(end.refusal)
        if command.whole_with is not None and (work / command.whole_with).exists() and problem is not None:
            row.fault(f"finished, but not whole: it {problem}", f"{context}\n{end}")
    else:
        lines = end.err.strip().splitlines() or [""]
        row.fault(f"exit code {end.code}: {lines[-1]}", f"{context}\n{end}")


def table(rows: list[Row]) -> str:
    """The rows as Markdown, with their sum."""
    lines = ["| kind | cases | whole files | same bits | one line | found | seconds |", "|---|---|---|---|---|---|---|"]
    sums = [sum(values) for values in zip(*((r.cases, r.whole, r.same, r.refused, len(r.found), r.seconds)
                                            for r in rows), strict=True)]  # fmt: skip
    figures = [(row.kind, row.cases, row.whole, row.same, row.refused, len(row.found), row.seconds) for row in rows]
    for name, cases, whole, same, refused, found, seconds in [*figures, ("in all", *sums)]:
        lines.append(f"| {name} | {cases:,} | {whole:,} | {same:,} | {refused:,} | {found} | {seconds:.0f} |")
    return "\n".join(lines)


def _without_names(signature: str) -> str:
    """A signature without the numbers of processes and the folders of a case."""
    return re.sub(r"/\S*/|0x[0-9a-f]+|\b\d{3,}\b", "_", signature)[:160]
