"""The command line of the campaigns: see scripts/fuzz."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

from fuzzing.campaign import Row, campaign, table, try_case
from lmtool.system.parallel import cores

# Campaigns of nonsense, each with its module; all others are kinds of kills.
NONSENSE = {name: name for name in ("files", "library", "numbers", "text", "words")}
NONSENSE |= {"yaml": "words", "strange-files": "files"}
MOST_LINES = 20  # of refusals


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./scripts/fuzz", description="see docs/development/fuzzing.md")
    parser.add_argument("names", help="all: of nonsense; kills: every kind; or some, separated by commas")
    parser.add_argument("seconds", nargs="?", default="60", help="of each campaign; or a case to repeat, as JSON")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--cases", type=int, default=None, help="maximum number of cases of each campaign")
    given = parser.parse_args(words)
    if given.names == "all":  # one per core at a time, so that each has that many times the seconds
        more = [str(float(given.seconds) * cores()), str(given.seed)]
        more += [] if given.cases is None else ["--cases", str(given.cases)]
        lines = [[sys.executable, "-m", "fuzzing", name, *more] for name in NONSENSE]
        with ThreadPoolExecutor(cores()) as pool:
            return max(pool.map(lambda line: subprocess.run(line).returncode, lines))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, chdir(folder):
        top, tempfile.tempdir = Path(folder).resolve(), folder
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
    refused = sum((row.refused for row in rows), Counter[str]())
    print(table(rows), *(f"{count:7}  {line}" for line, count in refused.most_common(MOST_LINES)), sep="\n", flush=True)
    return int(any(row.found for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
