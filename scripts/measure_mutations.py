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
import ast
import builtins
import gc
import inspect
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from mutation_faults import Fault, faults, with_fault

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).resolve().parent / "mutations_equivalent.toml"
SLOW = 3.0  # seconds of processor that a test, or what it needs beforehand, may take while its lines are noted
LONGEST = 8.0  # seconds of the tests together that are asked about a mutant; the longest are left out
MEMORY = 12 << 30  # bytes of address space that a mutant may have
OUT = os.dup(1)
SEE = "see_line_of_test"  # a builtin while lines are noted
# The modules of a group, and the tests that are asked.
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "ngram": (
        [
            f"lmtool/ngram/{name}.py"
            for name in (
                *("estimate", "pruning/entropy", "query/*", "tuning", "suffixes", "smoothers/*", "models/ngram_model"),
                "tables/backoff",
            )
        ],
        [
            "tests/test_incremental.py",
            *(
                f"tests/ngram/test_{name}.py"
                for name in ("smoothers", "pruning", "tuning", "table", "suffixes", "arpa", "options", "quantised")
            ),
        ],
    ),
    "outputs": (
        ["lmtool/neural/outputs/*.py"],
        [f"tests/neural/test_{name}.py" for name in ("outputs", "output_settings", "softmax*", "base", "presets")],
    ),
    "forms": (
        ["lmtool/neural/forms/*.py", "lmtool/neural/optimizers/*.py", "lmtool/neural/rows.py"],
        ["tests/neural/test_*.py"],
    ),
    "mixtures": (
        ["lmtool/mixtures/*.py"],
        [f"tests/test_{name}.py" for name in ("mixtures", "fit", "log_linear_bounds", "static_mixture", "ensemble")],
    ),
    "evaluation": (["lmtool/evaluation/*.py"], ["tests/evaluation/test_*.py", "tests/test_cloze_unknown.py"]),
    "trees": (["lmtool/trees/*.py"], ["tests/trees/test_*.py"]),
}


NOT_ASKED = {
    "lmtool/trees/wordnet.py",  # its tests need the files of WordNet, which cannot be shipped
    # A processor's own instructions for tiles and what stands for functions of math cannot run in the interpreter.
    *(f"lmtool/neural/forms/{name}.py" for name in ("tiles", "tile_vectors", "softmax_tiles", "fast_math")),
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
    number = sum(len(faults((ROOT / path).read_text())) for _, files, _ in plan for path in files)
    if chosen.list:
        for path in (path for _, files, _ in plan for path in files):
            for fault in faults((ROOT / path).read_text()):
                print(f"{path}:{fault.line}: {fault.change}")
        return 0
    rows = []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        _copy(Path(folder) / "tree")
        os.chdir(Path(folder) / "tree")
        for name, files, tests in plan:
            row = {"name": name, "of": 0, "equivalent": 0, "noticed": 0, "survived": 0}
            # What has compiled loops runs in the interpreter, the rest beside compiled ones.
            compiled = [path for path in files if "njit" in (ROOT / path).read_text()]
            for some, interpreted in ((compiled, True), ([p for p in files if p not in compiled], False)):
                group = _Group(some, tests, interpreted, chosen.seed)
                row["of"] += len(group.mutants)
                limit = chosen.seconds * len(group.mutants) / number
                found = _in_child(lambda group=group, limit=limit: group.run(limit), 3600, tell=True) if some else {}  # type: ignore[misc]
                if found is None:
                    sys.exit(f"{name}: the tests could not be run")
                row |= {key: row[key] + found.get(key, 0) for key in ("equivalent", "noticed", "survived")}  # type: ignore[operator]
            rows.append(row)
    _print(rows)
    return 0


def _plan(names: list[str]) -> list[tuple[str, list[str], list[str]]]:
    """Groups with the files to change and the tests to ask: all of them, those that are named, or those of files."""
    plan = []
    for name, (patterns, tests) in GROUPS.items():
        files = sorted({str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern)} - NOT_ASKED)
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
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)


class _Group:
    """The mutants of some files, and the tests that are asked about them. It is pytest's plugin in place of its loop
    over the tests: these are collected once, and each mutant is a child of that process.
    """

    def __init__(self, files: list[str], tests: list[str], interpreted: bool, seed: int) -> None:
        self.files, self.tests, self.interpreted = files, tests, interpreted
        self.sources = {path: (ROOT / path).read_text() for path in files}
        self.mutants = [(path, fault) for path in files for fault in faults(self.sources[path])]
        random.Random(seed).shuffle(self.mutants)
        self.equivalent = {
            (entry["file"], entry["line"], entry.get("change"))
            for entry in tomllib.loads(EQUIVALENT.read_text())["mutant"]
        }
        self.counts = {"equivalent": 0, "noticed": 0, "survived": 0}
        self.items: dict[str, pytest.Item] = {}

    def run(self, limit: float) -> dict[str, int]:
        """Draw mutants and run their tests until `limit` seconds are used up; how many there were of each outcome."""
        self.limit = limit
        if self.interpreted:
            os.environ["NUMBA_DISABLE_JIT"] = "1"
        sys.path.insert(0, os.getcwd())  # its lmtool and not the installed one
        os.environ["PYTHONPATH"] = os.getcwd()
        sys.dont_write_bytecode = True
        import torch

        torch.set_num_threads(1)
        pytest.main([*PYTEST, *self.tests], plugins=[self])
        return self.counts

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Note what each test runs, then judge mutants."""
        begin = time.perf_counter()
        self.items = {item.nodeid: item for item in session.items}
        seen = _in_child(lambda: self.baseline(session.config), 600, tell=True)
        if seen is None:
            os._exit(1)
        self.seconds: dict[str, float] = seen["seconds"]
        self.covering: dict[tuple[str, int], list[str]] = defaultdict(list)
        for test in self.seconds:
            for path, line in seen["lines"][test]:
                self.covering[path, line].append(test)
        form = "in the interpreter" if self.interpreted else "beside compiled loops"
        say(
            f"{len(self.files)} files {form}: {len(self.seconds)} tests, {len(self.items) - len(self.seconds)} left "
            f"out, {time.perf_counter() - begin:.0f} s to note their lines"
        )
        begin = time.perf_counter()
        for path, fault in self.mutants:
            if time.perf_counter() - begin > self.limit:
                break
            self.counts[self.judge(path, fault)] += 1
        return True

    def baseline(self, config: pytest.Config) -> dict[str, Any]:
        """The seconds of the tests that pass and are quick, and the lines of the files that each runs."""
        notes = _Notes()
        setattr(builtins, SEE, notes.see)
        for path, source in self.sources.items():
            put_in(path, ast.fix_missing_locations(_Probes(path).visit(ast.parse(source))))
        config.pluginmanager.register(notes)
        self.run_tests(list(self.items), first_failure=False)
        good = {test: s for test, s in notes.seconds.items() if test not in notes.bad}
        return {"seconds": good, "lines": {test: sorted(notes.lines[test]) for test in good}}

    def run_tests(self, tests: list[str], *, first_failure: bool) -> bool:
        """Whether all of these tests pass; the rest after a failure is left if only that is asked."""
        failed: list[str] = []

        class Failures:
            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    failed.append(report.nodeid)

        items = [self.items[test] for test in tests]
        items[0].config.pluginmanager.register(Failures())
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed and first_failure:
                return False
        return not failed

    def judge(self, path: str, fault: Fault) -> str:
        """noticed, survived or equivalent; survivors are printed."""
        source = self.sources[path]
        text = source.splitlines()[fault.line - 1].strip()
        if self.equivalent & {(path, text, fault.change), (path, text, None)}:
            return "equivalent"
        tests = {test for line in fault.lines for test in self.covering[path, line]}
        at_import = fault.at_import or not tests  # what no test runs may have run before them, in a decorator
        if at_import:
            tests = {test for (other, _), several in self.covering.items() if other == path for test in several}
        asked = sorted(tests, key=lambda test: self.seconds[test])
        while len(asked) > 1 and sum(self.seconds[test] for test in asked) > LONGEST:
            asked.pop()
        if asked:
            mutant = with_fault(source, fault)
            patience = 20 + 10 * sum(self.seconds[test] for test in asked)
            if not _in_child(lambda: self.passes(path, mutant, asked, at_import), patience):
                return "noticed"  # a failure, an end by a signal, or no end
        say(f"survived ({len(asked)} tests): {path}:{fault.line}: {fault.change}    in: {text}")
        return "survived"

    def passes(self, path: str, mutant: str, tests: list[str], at_import: bool) -> bool:
        """Whether these tests pass with the mutant of a file in this process."""
        if not at_import:
            put_in(path, mutant)
            return self.run_tests(tests, first_failure=True)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("lmtool", "tests", "conftest")]:
            del sys.modules[name]
        here = Path(path)
        try:
            here.write_text(mutant)
            return pytest.main([*PYTEST, "-x", *tests]) == 0
        finally:
            here.write_text(self.sources[path])


def put_in(path: str, mutant: str | ast.Module) -> None:
    """Give the functions of a module, where anyone has imported them, the code that they have in its mutant."""
    file = str(Path(path).resolve())
    new = {(code.co_qualname, code.co_firstlineno): code for code in _functions(compile(mutant, file, "exec"))}
    for function in [thing for thing in gc.get_objects() if type(thing) is FunctionType]:
        code = function.__code__
        if code.co_filename == file and (code.co_qualname, code.co_firstlineno) in new:
            function.__code__ = new[code.co_qualname, code.co_firstlineno]


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions of a module or class, not of those within functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            else:
                yield from _functions(constant)


def say(line: str) -> None:
    """Print past whatever pytest does with the standard output."""
    os.write(OUT, f"{line}\n".encode())


def _in_child(work: Callable[[], Any], patience: float, *, tell: bool = False) -> Any:
    """What `work` returns in a child of this process; None where it ends otherwise, or not in `patience` seconds.

    tell: print the error that ended it.
    """
    with tempfile.NamedTemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            try:
                Path(answer.name).write_text(json.dumps(work()))
            except BaseException as error:
                if tell:
                    say(f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        end = time.perf_counter() + patience
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.perf_counter() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
            time.sleep(0.01)
        said = Path(answer.name).read_text()
        return json.loads(said) if said else None


# In the interpreter numbers of 64 bits say that they overflow, as they are meant to.
PYTEST = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-s", "-W", "ignore::RuntimeWarning", "--no-header"]


class TooSlow(Exception):
    """A test takes longer than the run of the mutants has for it."""


def _too_slow(*_: object) -> None:
    raise TooSlow


class _Notes:
    """A plugin of pytest: which lines of the files each test runs, its fixtures included, and how long it takes."""

    def __init__(self) -> None:
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.now: set[tuple[str, int]] = set()
        self.seconds: dict[str, float] = {}
        self.bad: set[str] = set()
        signal.signal(signal.SIGPROF, _too_slow)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.now, self.begin = self.lines[nodeid], time.perf_counter()

    def see(self, path: str, line: int) -> None:
        """Called before each statement."""
        self.now.add((path, line))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        yield from self._limited()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        yield from self._limited()

    def _limited(self) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        try:
            return (yield)
        except Exception as error:  # raised here anew: pytest cannot show a frame without a line, as probes have
            raise RuntimeError(str(error)) from None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.bad.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.perf_counter() - self.begin


class _Probes(ast.NodeTransformer):
    """Puts a call of `see` before each statement of the functions of a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for inner in ast.walk(node):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(inner, field, None)
                if isinstance(statements, list) and not isinstance(inner, ast.ClassDef):
                    setattr(inner, field, [new for old in statements for new in (self._probe(old), old)])
        return node

    def _probe(self, node: ast.stmt) -> ast.stmt:
        call = ast.parse(f"{SEE}({self.path!r}, {node.lineno})").body[0]
        for part in ast.walk(call):
            ast.copy_location(part, node)
        return call


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'modules':<12}{'mutants':>9}{'drawn':>8}{'equivalent':>12}{'noticed':>9}{'survived':>10}{'rate':>9}")
    if len(rows) > 1:
        rows = [*rows, {"name": "all"} | {key: sum(row[key] for row in rows) for key in rows[0] if key != "name"}]
    for row in rows:
        tried = row["noticed"] + row["survived"]
        rate = f"{100 * row['noticed'] / tried:.1f} %" if tried else "-"
        print(
            f"{row['name']:<12}{row['of']:>9}{tried + row['equivalent']:>8}{row['equivalent']:>12}"
            f"{row['noticed']:>9}{row['survived']:>10}{rate:>9}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
