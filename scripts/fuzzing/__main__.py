"""The command line of the campaigns: see scripts/fuzz."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from fuzzing.campaign import Generator, Row, campaign, repeat, table, temporary_folder
from lmtool.system.parallel import cores

CAMPAIGN = re.compile(r"^(CASES\b|def run_campaign\()", re.MULTILINE)  # what a file has that is one


def names() -> list[str]:
    """The campaigns: the files of this folder that have cases, or search for them."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(path.stem for path in files if CAMPAIGN.search(path.read_text(encoding="utf-8")))


def generator(name: str) -> Generator:
    """A generator by its name."""
    module: Generator = importlib.import_module(f"fuzzing.{name}")
    return module


def main(words: list[str]) -> int:
    """Run one campaign, all of them, or one case; the exit code."""
    parser = argparse.ArgumentParser(
        prog="./scripts/fuzz", description="campaigns of nonsense; see docs/development/fuzzing.md"
    )
    parser.add_argument("name", choices=[*names(), "all"])
    parser.add_argument("seconds", nargs="?", default="60", help="of each campaign; or a case to repeat, as JSON")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--cases", type=int, default=None, help="end after this many")
    given = parser.parse_args(words)
    if given.name == "all":
        return _all(float(given.seconds), given.seed, given.cases)
    with temporary_folder() as top:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(top / "torch")  # which torch makes when it is imported
        if given.seconds.lstrip()[:1] in ("[", "{", '"'):
            return repeat(generator(given.name), top, json.loads(given.seconds))
        module, limits = generator(given.name), (top, float(given.seconds), given.seed, given.cases)
        run: Row | None = (
            module.run_campaign(*limits) if hasattr(module, "run_campaign") else campaign(given.name, module, *limits)
        )
    print(table([run] if run is not None else []))
    return int(run is not None and bool(run.found))


def _all(seconds: float, seed: int, cases: int | None) -> int:
    """Run all campaigns, one for each core at a time, so that each has as many times the seconds."""
    at_once = cores()
    free: SimpleQueue[int] = SimpleQueue()

    def take_a_core() -> None:  # this thread and what it starts: the cases of two campaigns could take the same one
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {free.get()})

    for core in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else []:
        free.put(core)

    def one(name: str) -> subprocess.CompletedProcess[str]:
        words = [name, str(seconds * at_once), str(seed), *(["--cases", str(cases)] if cases else [])]
        done = subprocess.run([sys.executable, "-m", "fuzzing", *words], stdout=subprocess.PIPE, text=True)
        found = [line for line in done.stdout.splitlines() if line and not line.startswith("|")]
        if found:
            print("\n".join(found), flush=True)
        return done

    with ThreadPoolExecutor(at_once, initializer=take_a_core) as pool:
        ended = list(pool.map(one, names()))
    print(table([]))
    for done in ended:
        rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
        print("".join(f"{row}\n" for row in rows[2:]), end="")
    return max(done.returncode for done in ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
