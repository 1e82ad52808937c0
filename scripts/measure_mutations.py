#!/usr/bin/env python3
"""./scripts/measure mutations: small faults, one at a time, in a copy of the modules that compute; do the tests notice?

    ./scripts/measure mutations [GROUP or FILE ...] [--seconds N] [--seed S] [--list]

Each mutant has one operator, constant, condition, call or result changed (`faults` in mutation_faults.py says which).
The tests that run its line are run, quickest first, until one fails; a mutant that none of them notices has survived.
Mutants are drawn at random by the seed until the seconds are used up. Those that change nothing that can be observed
are named in mutations_equivalent.toml, with the reason, and do not count.

Compiled loops run in the interpreter (NUMBA_DISABLE_JIT=1): to compile each mutant anew takes longer than to run it.
What only the compiled form does (threads beside it, overflow) is thereby not part of the run. Tests that fail in the
interpreter, or take longer than SLOW seconds there, are left out and counted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mutation_faults import Fault, faults, with_fault

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).resolve().parent / "mutations_equivalent.toml"
SLOW = 2.5  # seconds that a test, or what it needs beforehand, may take while its lines are noted
MEMORY = 12 << 30  # bytes of address space that a mutant may have
# The modules of a group, and the tests that are asked.
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "ngram": (
        [
            f"lmtool/ngram/{name}.py"
            for name in ("estimate", "pruning", "scoring", "tuning", "suffixes", "smoothers/*", "model", "table")
        ],
        [f"tests/ngram/test_{name}.py" for name in ("smoothers", "pruning", "tuning", "table", "suffixes", "arpa")],
    ),
    "outputs": (
        ["lmtool/neural/outputs/*.py"],
        [f"tests/neural/test_{name}.py" for name in ("outputs", "softmax", "base")],
    ),
    "kernels": (
        ["lmtool/neural/kernels/*.py", "lmtool/neural/sparse_optim.py"],
        [
            f"tests/neural/test_{name}.py"
            for name in ("hidden_units", "loops", "optim", "outputs", "plain_step", "rows", "softmax", "tiles")
        ],
    ),
    "mixtures": (
        ["lmtool/mixtures/*.py"],
        [f"tests/test_{name}.py" for name in ("mixtures", "log_linear_bounds", "static_mixture", "ensemble")],
    ),
    "evaluation": (["lmtool/evaluation/*.py"], ["tests/evaluation/test_*.py", "tests/test_cloze_unknown.py"]),
    "trees": (["lmtool/trees/*.py"], ["tests/trees/test_*.py"]),
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="measure mutations", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modules", nargs="*", help=f"groups ({', '.join(GROUPS)}) or files; all groups by default")
    parser.add_argument("--seconds", type=float, default=600.0, help="for the mutants of all groups together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    chosen = parser.parse_args(words)
    plan = _plan(chosen.modules)
    if chosen.list:
        for _, files, _ in plan:
            for path in files:
                for fault in faults((ROOT / path).read_text()):
                    print(f"{path}:{fault.line}: {fault.change}")
        return 0
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "tree"
        _copy(copy)
        os.chdir(copy)
        # Its lmtool and not the installed one; what takes long to import is imported once, before the forks.
        sys.path.insert(0, str(copy))
        os.environ["PYTHONPATH"] = str(copy)
        sys.dont_write_bytecode = True
        import h5py  # noqa: F401
        import numba  # noqa: F401
        import torch

        torch.set_num_threads(1)
        rows = [
            _Group(name, files, tests, random.Random(chosen.seed)).run(chosen.seconds / len(plan))
            for name, files, tests in plan
        ]
    _print(rows)
    return 0


def _plan(names: list[str]) -> list[tuple[str, list[str], list[str]]]:
    """Groups with the files to change and the tests to ask: all of them, those that are named, or those of files."""
    plan = []
    for name, (patterns, tests) in GROUPS.items():
        files = sorted({str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern)})
        files = [path for path in files if name in names or not names or path in names]
        if files:
            asked = sorted(str(p.relative_to(ROOT)) for pattern in tests for p in ROOT.glob(pattern))
            plan.append((name, files, asked))
    unknown = [name for name in names if name not in GROUPS and not any(name in files for _, files, _ in plan)]
    if unknown:
        sys.exit(f"no group and no file of one: {', '.join(unknown)}; groups are {', '.join(GROUPS)}")
    return plan


def _copy(copy: Path) -> None:
    for name in ("lmtool", "conf", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)


class _Group:
    """The mutants of some files, and the tests that are asked about them."""

    def __init__(self, name: str, files: list[str], tests: list[str], rng: random.Random) -> None:
        self.name, self.files, self.tests, self.rng = name, files, tests, rng
        self.equivalent = {
            (entry["file"], entry["line"], entry["change"]) for entry in tomllib.loads(EQUIVALENT.read_text())["mutant"]
        }

    def run(self, limit: float) -> dict[str, Any]:
        """Draw mutants and run their tests until `limit` seconds are used up; gives the row of the table."""
        begin = time.perf_counter()
        seen = _in_child(lambda: _baseline(self.files, self.tests), 1200)
        if seen is None:
            sys.exit(f"{self.name}: the tests ended the process that notes which lines they run")
        covering: dict[tuple[str, int], list[str]] = defaultdict(list)
        for test in sorted(seen["seconds"], key=lambda test: seen["seconds"][test]):
            for path, line in seen["lines"][test]:
                covering[path, line].append(test)
        print(
            f"{self.name}: {len(seen['seconds'])} tests, {seen['left_out']} left out, "
            f"{time.perf_counter() - begin:.0f} s to note their lines",
            flush=True,
        )
        mutants = [(path, fault) for path in self.files for fault in faults((ROOT / path).read_text())]
        total = len(mutants)
        self.rng.shuffle(mutants)
        counts = {"equivalent": 0, "noticed": 0, "survived": 0}
        begin = time.perf_counter()
        for path, fault in mutants:
            if time.perf_counter() - begin > limit:
                break
            outcome = self.judge(path, fault, covering, seen["seconds"])
            counts[outcome] += 1
        return {"name": self.name, "of": total, **counts}

    def judge(self, path: str, fault: Fault, covering: dict[tuple[str, int], list[str]], seconds: dict[str, float]) -> str:
        """noticed, survived or equivalent; survivors are printed."""
        source = (ROOT / path).read_text()
        text = source.splitlines()[fault.line - 1].strip()
        if (path, text, fault.change) in self.equivalent:
            return "equivalent"
        tests = sorted({test for line in fault.lines for test in covering[path, line]}, key=lambda test: seconds[test])
        if fault.at_import:
            tests = sorted(seconds, key=lambda test: seconds[test])[:200]
        if tests:
            Path(path).write_text(with_fault(source, fault))
            patience = 20 + 3 * sum(seconds[test] for test in tests)
            code = _in_child(lambda: _first_failure(tests), patience)
            Path(path).write_text(source)
            if code != 0:  # a failure, an end by a signal, or no end
                return "noticed"
        print(f"survived ({len(tests)} tests): {path}:{fault.line}: {fault.change}    in: {text}", flush=True)
        return "survived"


def _in_child(work: Callable[[], Any], patience: float) -> Any:
    """What `work` returns in a child of this process; None where it ends otherwise, or not in `patience` seconds."""
    with tempfile.NamedTemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            try:
                Path(answer.name).write_text(json.dumps(work()))
            finally:
                os._exit(0)
        end = time.perf_counter() + patience
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.perf_counter() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
            time.sleep(0.02)
        said = Path(answer.name).read_text()
        return json.loads(said) if said else None


# In the interpreter numbers of 64 bits say that they overflow, as they are meant to.
PYTEST = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::RuntimeWarning", "--no-header"]


def _first_failure(tests: list[str]) -> int:
    """pytest's exit code for these tests, ended by the first failure."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return int(pytest.main([*PYTEST, "-x", *tests]))


def _baseline(files: list[str], tests: list[str]) -> dict[str, Any]:
    """Run all tests: the seconds of those that pass and are quick, the lines of the files that each runs, and how many
    others there are.
    """
    notes = _Notes(files)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main([*PYTEST, *tests], plugins=[notes])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(said.getvalue()[-2000:])
    good = {test: s for test, s in notes.seconds.items() if test not in notes.bad and s < 2 * SLOW}
    return {
        "seconds": good,
        "lines": {test: sorted(notes.lines[test]) for test in good},
        "left_out": len(notes.seconds) - len(good),
    }


class TooSlow(Exception):
    """A test takes longer than the run of the mutants has for it."""


def _too_slow(*_: object) -> None:
    raise TooSlow


class _Notes:
    """A plugin of pytest: which lines of the files each test runs, its fixtures included, and how long it takes."""

    def __init__(self, files: Iterable[str]) -> None:
        self.paths = {str(Path(path).resolve()): path for path in files}
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.bad: set[str] = set()
        self.test = ""
        signal.signal(signal.SIGALRM, _too_slow)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test, self.begin = nodeid, time.perf_counter()
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        yield from self._limited()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        yield from self._limited()

    def _limited(self) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_REAL, SLOW)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.bad.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        self.seconds[nodeid] = time.perf_counter() - self.begin

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        path = self.paths.get(frame.f_code.co_filename)
        if path is None:
            return None
        seen = self.lines[self.test]

        def line(inner: FrameType, event: str, _: Any) -> Any:
            seen.add((path, inner.f_lineno))
            return line

        return line(frame, event, None)


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'modules':<12}{'mutants':>9}{'drawn':>8}{'equivalent':>12}{'noticed':>9}{'survived':>10}{'rate':>9}")
    rows = [*rows, {"name": "all"} | {key: sum(row[key] for row in rows) for key in rows[0] if key != "name"}]
    for row in rows:
        tried = row["noticed"] + row["survived"]
        rate = f"{100 * row['noticed'] / tried:.1f} %" if tried else "-"
        print(
            f"{row['name']:<12}{row['of']:>9}{tried + row['equivalent']:>8}{row['equivalent']:>12}"
            f"{row['noticed']:>9}{row['survived']:>10}{rate:>9}"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
