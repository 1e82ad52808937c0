"""One campaign: cases of a generator until the time is over; what fails is shrunk, and printed with its line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky, HypothesisException
from hypothesis.strategies import SearchStrategy

ROUND = 200  # cases of one seed of Hypothesis
SHRINKING = 8.0  # seconds for one fault
MOST_FAULTS = 20


class Fault(Exception):
    """What a case shows. signature: the same for cases that show the same fault."""

    def __init__(self, signature: str, report: str) -> None:
        super().__init__(f"{signature}\n{report}")
        self.signature = signature
        self.report = report


class Generator(Protocol):
    """A file of this folder; `prepare` may be called again in the same folder."""

    __name__: str
    CASES: SearchStrategy[Any]

    @staticmethod
    def prepare() -> None:
        """Make what all cases share, in the folder that the process is in."""

    @staticmethod
    def count(case: Any) -> int:
        """How many cases of the table it is."""

    @staticmethod
    def check(case: Any, place: Path) -> None:
        """Run a case in an empty folder. Raises Fault for what must not be."""


@dataclass
class Row:
    """The outcome of a campaign. found: the smallest case of each fault, by its signature, with the fault."""

    name: str
    cases: int = 0
    seconds: float = 0.0
    seed: int = 0
    found: dict[str, tuple[Any, Fault]] = field(default_factory=dict)


class _TimeIsOver(BaseException):
    """Ends Hypothesis' round: it catches Exceptions alone."""


def campaign(
    name: str, generator: Generator, top: Path, seconds: float, first_seed: int, most: int | None = None
) -> Row:
    """Run cases for so many seconds after `prepare`, or `most` of them, in a folder. Prints what is found."""
    row = Row(name, seed=first_seed)
    generator.prepare()
    start, number = time.monotonic(), first_seed
    while time.monotonic() < start + seconds and len(row.found) < MOST_FAULTS and (most is None or row.cases < most):
        known = set(row.found)
        _round(row, generator, top, number, start + seconds, most)
        for signature in row.found.keys() - known:
            print_found(row, signature, number)
        number += 1
    row.seconds = time.monotonic() - start
    return row


def repeat(generator: Generator, top: Path, case: Any) -> int:
    """Run one case in a folder and print its fault; the exit code."""
    generator.prepare()
    fault = _fault_of(generator, case, top)
    print(f"{fault.signature}\n{fault.report}" if fault else "nothing found")
    return int(fault is not None)


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| campaign | seed | cases | seconds | found |", "|---|---|---|---|---|"]
    lines += [f"| {row.name} | {row.seed} | {row.cases:,} | {row.seconds:.0f} | {len(row.found)} |" for row in rows]
    return "\n".join(lines)


def print_found(row: Row, signature: str, number: int, of: str | None = None) -> None:
    """Print the smallest case of a fault. number: its seed. of: the campaign that repeats it, if it is another one."""
    case, fault = row.found[signature]
    print(f"found by {row.name}, seed {number}: {signature}")
    print("\n".join(f"    {line}" for line in fault.report.strip().splitlines()[-12:]))
    print(f"  again: ./scripts/fuzz {of or row.name} {shlex.quote(json.dumps(case))}", flush=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder, which the process is in until the block ends."""
    before, path = Path.cwd(), Path(tempfile.mkdtemp(prefix="fuzz-")).resolve()
    os.chdir(path)
    try:
        yield path
    finally:
        os.chdir(before)
        remove(path)


def remove(path: Path) -> None:
    """Remove a folder whatever its permissions are."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def _round(row: Row, generator: Generator, top: Path, number: int, deadline: float, most: int | None) -> None:
    """Cases of one seed, until one fails in a way that is not known; that one is shrunk."""
    known = set(row.found)
    shrinking_until: list[float] = []

    def one(case: Any) -> None:
        now = time.monotonic()
        if shrinking_until and now > shrinking_until[0]:
            raise _TimeIsOver
        if not shrinking_until and (now > deadline or (most is not None and row.cases >= most)):
            raise _TimeIsOver
        row.cases += 0 if shrinking_until else generator.count(case)
        fault = _fault_of(generator, case, top)
        if fault is None or fault.signature in known:
            return
        if not shrinking_until:
            shrinking_until.append(time.monotonic() + SHRINKING)
        best = row.found.get(fault.signature)
        if best is None or len(json.dumps(case)) <= len(json.dumps(best[0])):
            row.found[fault.signature] = case, fault
        raise fault

    run = settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )(seed(number)(given(generator.CASES)(one)))
    try:
        run()
    except (_TimeIsOver, Fault, Flaky, ExceptionGroup):
        return
    except HypothesisException as error:
        raise RuntimeError(f"the generator {row.name} is at fault: {error}") from error


def _fault_of(generator: Generator, case: Any, top: Path) -> Fault | None:
    place = Path(tempfile.mkdtemp(prefix="case-", dir=top))
    try:
        generator.check(case, place)
    except Fault as fault:
        return fault
    finally:
        remove(place)
    return None
