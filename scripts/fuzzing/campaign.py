"""One campaign: cases of a generator until the time is over; failures are shrunk and printed with their line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky, HypothesisException
from hypothesis.strategies import SearchStrategy

import lmtool
from fuzzing.child import forked

ROUND = 200  # cases of one seed of Hypothesis
SHRINKING = 8.0  # seconds for one fault
PACKAGE = Path(lmtool.__file__).resolve().parent
REFUSED = "refused: "  # begins the line that a child prints for a UserError


class Fault(Exception):
    """What a case shows. signature: equal for cases that show the same fault. smaller: a case that may suffice."""

    def __init__(self, signature: str, report: str, smaller: Any = None) -> None:
        super().__init__(f"{signature}\n{report}")
        self.signature, self.report, self.smaller = signature, report, smaller


class Generator(NamedTuple):
    """What a campaign draws, and what must hold of each case.

    cases: a strategy of cases that JSON can hold. check: runs a case in an empty folder, returns the errors of one line
    that it ended with, and raises Fault. prepare: makes what all cases share in the current folder, unless it exists.
    count: how many cases of the table a case is.
    """

    cases: SearchStrategy[Any]
    check: Callable[[Any, Path], list[str]]
    prepare: Callable[[], object]
    count: Callable[[Any], int] = lambda case: 1


@dataclass
class Row:
    """The outcome of a campaign. refused: errors in one line that cases ended with, each counted; found: the smallest
    case of each fault, by its signature, with the fault.
    """

    name: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    found: dict[str, tuple[Any, Fault]] = field(default_factory=dict)


class _TimeIsOver(BaseException):
    """Ends Hypothesis' round, which catches only Exceptions."""


def campaign(
    name: str, generator: Generator, top: Path, seconds: float, first_seed: int, most: int | None = None
) -> Row:
    """Run cases for `seconds` after `prepare`, or `most` of them, in a folder. Prints faults as they are found."""
    row = Row(name, first_seed)
    generator.prepare()
    start, number = time.monotonic(), first_seed
    while time.monotonic() < start + seconds and (most is None or row.cases < most):
        known = set(row.found)
        _round(row, generator, top, number, start + seconds, most)
        for signature in row.found.keys() - known:
            case, fault = row.found[signature]
            smaller = try_case(generator, fault.smaller, top)[0] if fault.smaller is not None else None
            if smaller is not None and smaller.signature == signature:
                case, fault = row.found[signature] = fault.smaller, smaller
            print(f"found by {name}, seed {number}: {signature}")
            print("\n".join(f"    {line}" for line in fault.report.strip().splitlines()[-14:]))
            print(f"  again: ./scripts/fuzz {name} {shlex.quote(json.dumps(case))}", flush=True)
        number += 1
    row.seconds = time.monotonic() - start
    return row


def _round(row: Row, generator: Generator, top: Path, number: int, deadline: float, most: int | None) -> None:
    """Run cases of one seed until one shows a new fault, and shrink that one."""
    known = set(row.found)
    shrink_until: float | None = None

    def one(case: Any) -> None:
        nonlocal shrink_until
        is_over = time.monotonic() > (shrink_until or deadline)
        if is_over or (shrink_until is None and most is not None and row.cases >= most):
            raise _TimeIsOver
        fault, refused = try_case(generator, case, top)
        if shrink_until is None:
            row.cases += generator.count(case)
            row.refused.update(map(without_names, refused))
        if fault is None or fault.signature in known:
            return
        shrink_until = shrink_until or time.monotonic() + SHRINKING
        best = row.found.get(fault.signature)
        if best is None or len(json.dumps(case)) <= len(json.dumps(best[0])):
            row.found[fault.signature] = case, fault
        raise fault

    phases = [Phase.generate, Phase.shrink]
    chosen = settings(max_examples=ROUND, deadline=None, database=None, phases=phases, print_blob=False)
    run = settings(chosen, suppress_health_check=list(HealthCheck))(seed(number)(given(generator.cases)(one)))
    try:
        run()
    except (_TimeIsOver, Fault, Flaky, ExceptionGroup):
        return
    except HypothesisException as error:
        raise RuntimeError(f"the generator {row.name} is at fault: {error}") from error


def try_case(generator: Generator, case: Any, top: Path) -> tuple[Fault | None, list[str]]:
    """Run one case in a fresh folder, whose path is always the same; return its fault and its errors in one line."""
    place = top / "case"
    place.mkdir()
    try:
        return None, generator.check(case, place)
    except Fault as fault:
        return fault, []
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Wrong(Exception):
    """An answer that is wrong, or a file that was refused without a reason; the text up to a colon names the fault."""


def try_all(
    items: Sequence[Any],
    act: Callable[[Any], None],
    place: Path,
    *,
    seconds: int,
    expected: tuple[type[Exception], ...] = (),
    name: Callable[[Any], str] = str,
    make: Callable[[Path], None] | None = None,
) -> list[str]:
    """Act on each item in one forked child, in the folder `work` of a place; return its UserErrors. Raises Fault for
    the first bad item.

    A UserError of one printable line is a right answer, as are `expected` errors; all else, and more than `seconds` for
    one item, is a fault. name: of an item, in the signature of a fault that ends the child. make: fills the folder.
    """
    for folder in ("work", "tmp"):
        (place / folder).mkdir()
    if make is not None:
        make(place / "work")
    environment = {"HOME": str(place), "TMPDIR": f"{place}/tmp"}
    end = forked(lambda: _try_all(items, act, place / "at", seconds, expected), place / "work",
                 limit=seconds + len(items), environment=environment)  # fmt: skip
    at = int((place / "at").read_text() or 0)
    if end.code != 0:
        how = "it does not end" if end.code is None else f"signal {-end.code}" if end.code < 0 else end.last_line
        signature = end.last_line if end.code == 1 else f"{name(items[at])[:60]}: {how}"
        report = f"case {at + 1}: {json.dumps([items[at]])[:1500]}\n{end.err[-3000:]}"
        raise Fault(signature[:200], report, smaller=[items[at]])
    return [line.removeprefix(REFUSED) for line in end.out.splitlines() if line.startswith(REFUSED)]


class TooSlow(BaseException):
    """An item takes too long; not caught by any `except Exception` of the code under test."""


def _try_all(
    items: Sequence[Any], act: Callable[[Any], None], at: Path, seconds: int, expected: tuple[type[Exception], ...]
) -> int:
    """Return 1 after the first fault, whose signature is then the last line on standard error."""
    from lmtool.errors import UserError

    def too_slow(*_: object) -> None:
        raise TooSlow

    warnings.simplefilter("error", RuntimeWarning)
    signal.signal(signal.SIGALRM, too_slow)
    for number, item in enumerate(items):
        at.write_text(str(number))
        signal.alarm(seconds)
        try:
            try:
                act(item)
            except UserError as error:
                if not str(error) or not str(error).isprintable() or len(str(error)) > 4000:
                    raise Wrong(f"not one line: {len(str(error))} letters: {str(error)[:200]!r}") from error
                print(f"{REFUSED}{error}")
        except expected:
            continue
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            print(signature_of(error), file=sys.stderr)
            return 1
        finally:
            signal.alarm(0)
    return 0


def is_of_lmtool(name: str) -> bool:
    """Return whether a file is in the folder of the package, whatever the folders above it are called."""
    return Path(name).resolve().is_relative_to(PACKAGE)


def frames_of_lmtool(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_of_lmtool(frame.filename)]


def signature_of(error: BaseException) -> str:
    """Return the type of an error, the function of lmtool it comes from, and what is wrong: equal for equal faults."""
    where = frames_of_lmtool(error)
    last = f" in {Path(where[-1].filename).resolve().relative_to(PACKAGE)}:{where[-1].name}" if where else ""
    what = str(error).partition(":")[0][:80] if isinstance(error, Wrong | AssertionError) else ""
    return f"{type(error).__name__}{last} {without_names(what)}".strip()


def without_names(text: str) -> str:
    """Return the beginning of a message without what differs between cases."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[\d.]+|/\S+", "_", text)[:80]


def table(rows: list[Row]) -> str:
    lines = ["| campaign | seed | cases | refused | seconds | found |", "|---|---|---|---|---|---|"]
    for row in rows:
        figures = f"{row.seed} | {row.cases:,} | {row.refused.total():,} | {row.seconds:.0f} | {len(row.found)}"
        lines.append(f"| {row.name} | {figures} |")
    return "\n".join(lines)
