"""The command line of the campaigns: see scripts/fuzz."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from fuzzing.campaign import Row, campaign, table, temporary_folder, try_case
from lmtool.system.parallel import cores

# Campaigns of nonsense, each with its module; all others are kinds of kills.
NONSENSE = {name: name for name in ("files", "library", "numbers", "text")} | {"words": "lines", "yaml": "lines"}
NONSENSE |= dict.fromkeys(("strange-files", "strange-settings", "environments"), "strangers")
MOST_LINES = 20  # of refusals


def main(words: list[str]) -> int:
    """Run campaigns, or one case; return the exit code."""
    parser = argparse.ArgumentParser(prog="./scripts/fuzz", description="see docs/development/fuzzing.md")
    parser.add_argument("names", help="all: of nonsense; kills: every kind; or some, separated by commas")
    parser.add_argument("seconds", nargs="?", default="60", help="of each campaign; or a case to repeat, as JSON")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--cases", type=int, default=None, help="maximum number of cases of each campaign")
    given = parser.parse_args(words)
    if given.names == "all":
        return _all(float(given.seconds), given.seed, given.cases)
    rows: list[Row] = []
    with temporary_folder() as top:
        # Before torch is imported.
        os.environ.update(OMP_NUM_THREADS="1", TORCHINDUCTOR_CACHE_DIR=str(top / "torch"))
        kills = importlib.import_module("kills.kinds").CAMPAIGNS
        for name in kills if given.names == "kills" else given.names.split(","):
            known = importlib.import_module(f"fuzzing.{NONSENSE[name]}").CAMPAIGNS if name in NONSENSE else kills
            if name not in known:
                parser.error(f"unknown campaign {name}: choose from {', '.join([*NONSENSE, *kills])}")
            if given.seconds.lstrip()[:1] in ("[", "{", '"'):
                known[name].prepare()
                fault, _ = try_case(known[name], json.loads(given.seconds), top)
                print(f"{fault.signature}\n{fault.report}" if fault else "nothing found")
                return int(fault is not None)
            rows.append(campaign(name, known[name], top, float(given.seconds), given.seed, given.cases))
            print(table(rows[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    print(table(rows))
    refused = sum((row.refused for row in rows), Counter[str]())
    for line, count in refused.most_common(MOST_LINES):
        print(f"{count:7}  {line}")
    return int(any(row.found for row in rows))


def _all(seconds: float, seed: int, cases: int | None) -> int:
    """Run all campaigns of nonsense, one per core at a time, so that each has that many times the seconds."""
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
        ended = list(pool.map(one, NONSENSE))
    print("\n".join([table([]), *(row for _, rows in ended for row in rows)]))
    return max(code for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
