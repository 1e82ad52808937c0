"""The command line of the campaigns: see scripts/fuzz."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from fuzzing.campaign import campaign, repeat, table, temporary_folder
from lmtool.system.parallel import cores

NAMES = ["files", "library", "numbers", "text", "words", "yaml"]


def main(words: list[str]) -> int:
    """Run one campaign, all of them, or one case; return the exit code."""
    parser = argparse.ArgumentParser(prog="./scripts/fuzz", description="see docs/development/fuzzing.md")
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("seconds", nargs="?", default="60", help="of each campaign; or a case to repeat, as JSON")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--cases", type=int, default=None, help="maximum number of cases")
    given = parser.parse_args(words)
    if given.name == "all":
        return _all(float(given.seconds), given.seed, given.cases)
    with temporary_folder() as top:
        # Before torch is imported.
        os.environ.update(OMP_NUM_THREADS="1", TORCHINDUCTOR_CACHE_DIR=str(top / "torch"))
        module = importlib.import_module(f"fuzzing.{given.name}")
        if given.seconds.lstrip()[:1] in ("[", "{", '"'):
            return repeat(module, top, json.loads(given.seconds))
        row = campaign(given.name, module, top, float(given.seconds), given.seed, given.cases)
    print(table([row]))
    return int(bool(row.found))


def _all(seconds: float, seed: int, cases: int | None) -> int:
    """Run all campaigns, one per core at a time, so that each has that many times the seconds."""
    at_once = cores()
    free: SimpleQueue[int] = SimpleQueue()
    for core in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else []:
        free.put(core)

    def take_a_core() -> None:  # this thread and what it starts: cases of two campaigns could take the same one
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {free.get()})

    def one(name: str) -> tuple[int, list[str]]:
        words = [name, str(seconds * at_once), str(seed), *(["--cases", str(cases)] if cases else [])]
        done = subprocess.run([sys.executable, "-m", "fuzzing", *words], stdout=subprocess.PIPE, text=True)
        lines = [line for line in done.stdout.splitlines() if line]
        print("".join(f"{line}\n" for line in lines if not line.startswith("|")), end="", flush=True)
        return done.returncode, [line for line in lines if line.startswith("|")][2:]

    with ThreadPoolExecutor(at_once, initializer=take_a_core) as pool:
        ended = list(pool.map(one, NAMES))
    print("\n".join([table([]), *(row for _, rows in ended for row in rows)]))
    return max(code for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
