"""The command line of the campaigns: ./scripts/measure kills [SECONDS] [SEED] [KIND ...]"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # fuzzing and kills are beside each other

from kills import place, sigkill, worst_moments
from kills.commands import COMMANDS
from kills.judge import Row, table

OTHERS: list[str] = []


def main(words: list[str]) -> int:
    """Run campaigns; the exit code, 1 where anything was found."""
    if words == ["chosen"]:
        return worst_moments.chosen()
    parser = argparse.ArgumentParser(prog="./scripts/measure kills", description="see docs/reliability.md")
    names = [command.name for command in COMMANDS]
    parser.add_argument("seconds", nargs="?", type=float, default=60.0, help="of each kind")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("kinds", nargs="*", help=f"all unless given: {', '.join([*names, *OTHERS])}")
    parser.add_argument("--most", type=int, default=None, help="kills of each kind")
    given = parser.parse_args(words)
    wanted = given.kinds or [*names, *OTHERS]
    unknown = [kind for kind in wanted if kind not in (*names, *OTHERS)]
    if unknown:
        parser.error(f"no kind {unknown[0]}; there are {', '.join([*names, *OTHERS])}")
    before, top = Path.cwd(), Path(tempfile.mkdtemp(prefix="kills-")).resolve()
    os.chdir(top)
    tempfile.tempdir = str(top)
    rows: list[Row] = []
    try:
        place.prepare([command for command in COMMANDS if command.name in wanted or OTHERS])
        for command in COMMANDS:
            if command.name in wanted:
                rows.append(sigkill.campaign(command, given.seconds, given.seed, given.most))
                print(table(rows[-1:]).splitlines()[2], flush=True)
    finally:
        os.chdir(before)
        shutil.rmtree(top, ignore_errors=True)
    print(table(rows))
    return int(any(row.found for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
