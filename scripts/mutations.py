"""./scripts/measure mutations: mutation testing with Cosmic Ray. Do the tests notice small faults in what computes?

    ./scripts/measure mutations [GROUP or FILE ...] [--seconds N] [--seed S]

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
# The folder of a group's modules below lmtool, and the tests that are run, as patterns.
GROUPS = {
    "ngram": ("ngram", ["tests/ngram/test_*.py"]),
    "outputs": ("neural/outputs", ["tests/neural/test_*.py"]),
    "forms": ("neural/forms", ["tests/neural/test_*.py"]),
    "optimizers": ("neural/optimizers", ["tests/neural/test_*.py"]),
    "mixtures": (
        "mixtures",
        ["tests/mixtures/test_*.py", "tests/commands/test_ensemble.py"],
    ),
    "evaluation": ("evaluation", ["tests/evaluation/test_*.py"]),
    "trees": ("trees", ["tests/trees/test_*.py"]),
}
# WordNet's files cannot be shipped; tile instructions and replacements of math functions exist only when compiled.
EXCLUDED = re.compile(r"wordnet|tiles|tile_vectors|fast_math|spark/")
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
PYTEST += ["-W", "ignore::RuntimeWarning"]  # integers of 64 bits overflow on purpose and say so when interpreted


def main() -> None:
    """Run the groups or files named on the command line, in a copy of the repository."""
    parser = argparse.ArgumentParser(prog="measure mutations", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modules", nargs="*", help=f"groups ({', '.join(GROUPS)}) or files; default: all groups")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all groups together")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    plan = {}
    for group, (folder, tests) in GROUPS.items():
        paths = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "lmtool" / folder).rglob("*.py"))]
        wanted = [path for path in paths if not chosen.modules or {group, path} & {*chosen.modules}]
        plan[group] = [path for path in wanted if not EXCLUDED.search(path)], tests
    plan = {group: each for group, each in plan.items() if each[0]}
    if not plan:
        parser.error(f"no group or file {', '.join(chosen.modules)}; groups: {', '.join(GROUPS)}")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in ("lmtool", "conf", "tests", "scripts", "pyproject.toml", "README.md"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        os.chdir(folder)
        os.environ.update(NUMBA_DISABLE_JIT="1", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        for group, (files, patterns) in plan.items():
            tests = [str(path) for pattern in patterns for path in sorted(Path().glob(pattern))]
            run_group(group, files, tests, chosen.seconds / len(plan), chosen.seed)


def run_group(name: str, files: list[str], tests: list[str], seconds: float, seed: int) -> None:
    """Draw mutants of the files until the time is over; print the survivors and the share that the tests noticed."""
    try:
        from cosmic_ray.commands import init
        from cosmic_ray.mutating import mutate_and_test
        from cosmic_ray.work_db import use_db
        from cosmic_ray.work_item import TestOutcome
    except ImportError:
        sys.exit("measure mutations: Cosmic Ray is not installed: pip install -e .[mutations]")
    with use_db("session.sqlite") as database:
        init([Path(path) for path in files], database, {})
        mutations = [item.mutations for item in database.work_items]
    mutations = [each for each in mutations if not UNOBSERVED.fullmatch(each[0].operator_name)]
    random.Random(seed).shuffle(mutations)
    command, taken = baseline(tests)
    outcomes: list[TestOutcome] = []
    begin = time.monotonic()
    while mutations[len(outcomes) :] and time.monotonic() - begin < seconds:
        each = mutations[len(outcomes)]
        result = mutate_and_test(each, command, 10 + PATIENCE * taken)
        outcomes.append(result.test_outcome)
        if result.test_outcome is TestOutcome.SURVIVED:
            print(f"survived: {each[0].module_path}:{each[0].start_pos[0]}\n{result.diff}\n", flush=True)
    noticed = outcomes.count(TestOutcome.KILLED)
    share = f"{100 * noticed / max(1, len(outcomes)):.1f} %"
    print(f"{name}: {len(mutations):,} mutants, {len(outcomes)} drawn, {noticed} noticed, {share}", flush=True)


def baseline(tests: list[str]) -> tuple[str, float]:
    """Run the tests on the unchanged modules; return the command of the passing, fast ones and its seconds."""
    subprocess.run([*PYTEST, "--maxfail=100000", "--junitxml=tests.xml", *tests], stdout=subprocess.DEVNULL)
    left_out = [
        f"--deselect={case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in ElementTree.parse("tests.xml").iter("testcase")
        if len(case) or float(case.get("time", "0")) > SLOW  # its children say that it failed or was skipped
    ]
    command, begin = [*PYTEST, *left_out, *tests], time.monotonic()
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"measure mutations: the tests fail without any mutation: {shlex.join(command)}")
    print(f"{len(left_out)} tests left out; the others take {time.monotonic() - begin:.0f} s", flush=True)
    return shlex.join(command), time.monotonic() - begin


if __name__ == "__main__":
    main()
