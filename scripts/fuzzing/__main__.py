"""The command line of the campaigns: see scripts/fuzz."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from pathlib import Path

from fuzzing.campaign import Generator, Row, campaign, repeat, table, temporary_folder

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
    with temporary_folder() as top:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(top / "torch")  # which torch makes when it is imported
        if given.seconds.lstrip()[:1] in ("[", "{", '"'):
            return repeat(generator(given.name), top, json.loads(given.seconds))
        rows: list[Row] = []
        for name in names() if given.name == "all" else [given.name]:
            module, limits = generator(name), (top, float(given.seconds), given.seed, given.cases)
            row = module.run_campaign(*limits) if hasattr(module, "run_campaign") else campaign(name, module, *limits)
            rows += [row] if row is not None else []
    print(table(rows))
    return int(any(row.found for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
