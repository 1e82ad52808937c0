#!/usr/bin/env python3
"""./scripts/measure mutations: mutation testing with Cosmic Ray. Do the tests notice small faults in what computes?

    ./scripts/measure mutations [GROUP or FILE ...] [--seconds N] [--seed S] [--list]

Mutants are drawn at random by the seed until the time of each group is used up; survivors are printed as a diff. A
survivor is either a missing test or a mutant that changes nothing observable. Needs the extra `mutations`.

Compiled loops run in the interpreter (NUMBA_DISABLE_JIT=1), because compiling each mutant takes longer than running it;
faults that only the compiled form has (threads, overflow) are not found. Tests that fail in the interpreter, or take
longer than SLOW seconds there, are left out.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
SLOW = 2.0  # seconds of one test in the interpreter, beyond which it is left out
PATIENCE = 5.0  # a mutant's tests may take this many times as long as those of the unchanged module
# Mutation operators whose mutants cannot be observed: `|` is mostly in annotations, decorators are mostly @njit.
UNOBSERVED = re.compile(r"core/(ReplaceBinaryOperator_BitOr_.*|RemoveDecorator|ExceptionReplacer)")
# Modules of a group and the tests that are run, as patterns.
GROUPS = {
    "ngram": (["lmtool/ngram/**/*.py"], ["tests/ngram/test_*.py", "tests/test_states.py"]),
    "outputs": (["lmtool/neural/outputs/*.py"], ["tests/neural/test_*.py"]),
    "forms": (["lmtool/neural/forms/*.py", "lmtool/neural/optimizers/*.py"], ["tests/neural/test_*.py"]),
    "mixtures": (["lmtool/mixtures/*.py"], ["tests/test_*mixture*.py", "tests/test_fit.py", "tests/test_ensemble.py"]),
    "evaluation": (["lmtool/evaluation/*.py"], ["tests/evaluation/test_*.py", "tests/test_cloze_unknown.py"]),
    "trees": (["lmtool/trees/*.py"], ["tests/trees/test_*.py"]),
}
# WordNet's files cannot be shipped; tile instructions and replacements of math functions exist only when compiled.
EXCLUDED = re.compile(r"wordnet|tiles|tile_vectors|fast_math|spark/")


def main(words: list[str]) -> int:
    """Run the groups named on the command line."""
    parser = argparse.ArgumentParser(prog="measure mutations", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modules", nargs="*", help=f"groups ({', '.join(GROUPS)}) or files; default: all groups")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all groups together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    chosen = parser.parse_args(words)
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        sys.exit("measure mutations: Cosmic Ray is not installed: pip install -e .[mutations]")
    plan = {name: (expand(files, chosen.modules, name), expand(tests)) for name, (files, tests) in GROUPS.items()}
    plan = {name: (files, tests) for name, (files, tests) in plan.items() if files}
    if not plan:
        sys.exit(f"measure mutations: no group or file {', '.join(chosen.modules)}; groups: {', '.join(GROUPS)}")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in ("lmtool", "conf", "tests", "scripts", "pyproject.toml", "README.md"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        os.chdir(folder)
        os.environ.update(NUMBA_DISABLE_JIT="1", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        for name, (files, tests) in plan.items():
            run_group(name, files, tests, chosen.seconds / len(plan), chosen.seed, only_list=chosen.list)
    return 0


def expand(patterns: list[str], chosen: list[str] | None = None, group: str = "") -> list[str]:
    """Return the files that match the patterns, restricted to the chosen ones unless their whole group is chosen."""
    found = sorted({str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)})
    found = [path for path in found if not EXCLUDED.search(path)]
    return found if not chosen or group in chosen else [path for path in found if path in chosen]


def run_group(name: str, files: list[str], tests: list[str], seconds: float, seed: int, *, only_list: bool) -> None:
    """Draw mutants of the files until the time is over; print the survivors and the share that the tests noticed."""
    from cosmic_ray.commands import init
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import TestOutcome

    with use_db("session.sqlite") as database:
        init([Path(path) for path in files], database, {})
        mutations = [item.mutations for item in database.work_items]
    mutations = [each for each in mutations if not UNOBSERVED.fullmatch(each[0].operator_name)]
    random.Random(seed).shuffle(mutations)
    if only_list:
        for (mutation,) in mutations:
            print(f"{mutation.module_path}:{mutation.start_pos[0]}: {mutation.operator_name.removeprefix('core/')}")
        return
    command, taken = baseline(tests)
    outcomes = []
    begin = time.monotonic()
    for each in mutations:
        if time.monotonic() - begin > seconds:
            break
        result = mutate_and_test(each, command, 10 + PATIENCE * taken)
        outcomes.append(result.test_outcome)
        if result.test_outcome is TestOutcome.SURVIVED:
            print(f"survived: {each[0].module_path}:{each[0].start_pos[0]}\n{result.diff}\n", flush=True)
    noticed = outcomes.count(TestOutcome.KILLED)
    share = f"{100 * noticed / len(outcomes):.1f} %" if outcomes else "-"
    print(f"{name}: {len(mutations):,} mutants, {len(outcomes)} drawn, {noticed} noticed, {share}", flush=True)


def baseline(tests: list[str]) -> tuple[str, float]:
    """Run the tests on the unchanged modules; return the command of the passing, fast ones and its seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-W", "ignore::RuntimeWarning"]  # integers of 64 bits overflow on purpose and say so when interpreted
    subprocess.run([*command, "--maxfail=100000", "--junitxml=tests.xml", *tests], stdout=subprocess.DEVNULL)
    left_out = []
    cases = list(ElementTree.parse("tests.xml").iter("testcase"))
    for case in cases:
        if len(case) or float(case.get("time", "0")) > SLOW:  # its children say that it failed or was skipped
            left_out.append(f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}")
    command += [word for test in left_out for word in ("--deselect", test)] + tests
    begin = time.monotonic()
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"measure mutations: the tests fail without any mutation: {shlex.join(command)}")
    taken = time.monotonic() - begin
    print(f"{len(cases) - len(left_out)} tests, {len(left_out)} left out, {taken:.0f} s", flush=True)
    return shlex.join(command), taken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
