"""The command line of the campaigns: ./scripts/measure kills [SECONDS] [SEED] [KIND ...]"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # fuzzing and kills are beside each other

from kills import limits, place, power, sigkill, surroundings, system_calls, worst_moments
from kills.commands import COMMANDS, Command
from kills.judge import Row, table

Campaign = Callable[[Command, float, int, int | None], Row]
POWER = ["preprocess", "counts", "estimation", "nplm", "eval", "ensemble", "convert", "tree", "score", "sweep"]
WRITERS = ["preprocess", "counts", "estimation", "nplm", "eval", "convert", "score", "sweep"]
DISTURBED = {
    "size": (limits.file_sizes, WRITERS),
    "full": (limits.full_disk, WRITERS),
    "memory": (limits.short_memory, ["preprocess", "counts", "estimation", "tuning", "nplm", "nce", "eval", "score"]),
    "read-only": (surroundings.read_only, [*WRITERS, "ensemble", "merge", "tree", "report"]),
    "clock": (surroundings.clocks, WRITERS),
    "eight": (surroundings.eight, ["estimation", "sweep"]),
}


def main(words: list[str]) -> int:
    """Run campaigns; the exit code, 1 where anything was found."""
    if words == ["chosen"]:
        return worst_moments.chosen()
    parser = argparse.ArgumentParser(prog="./scripts/measure kills", description="see docs/development/reliability.md")
    known = kinds()
    parser.add_argument("seconds", nargs="?", type=float, default=60.0, help="of each kind")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("kinds", nargs="*", help=f"all unless given: {', '.join(known)}")
    parser.add_argument("--most", type=int, default=None, help="cases of each kind")
    given = parser.parse_args(words)
    unknown = [kind for kind in given.kinds if kind not in known]
    if unknown:
        parser.error(f"no kind {unknown[0]}; there are {', '.join(known)}")
    before, top = Path.cwd(), Path(tempfile.mkdtemp(prefix="kills-")).resolve()
    os.chdir(top)
    tempfile.tempdir = str(top)
    rows: list[Row] = []
    try:
        chosen = {kind: known[kind] for kind in given.kinds or known}
        place.prepare([command for _, command in chosen.values()])
        for campaign, command in chosen.values():
            rows.append(campaign(command, given.seconds, given.seed, given.most))
            print(table(rows[-1:]).splitlines()[2], flush=True)
    finally:
        os.chdir(before)
        shutil.rmtree(top, ignore_errors=True)
    print(table(rows))
    for line, count in sum((row.said for row in rows), Counter[str]()).most_common():
        print(f"{count:5}  {line}")
    return int(any(row.found for row in rows))


def kinds() -> dict[str, tuple[Campaign, Command]]:
    """Every kind of campaign, with the command that it disturbs."""
    commands = {command.name: command for command in COMMANDS}
    found: dict[str, tuple[Campaign, Command]] = {
        name: (sigkill.campaign, command) for name, command in commands.items()
    }
    if system_calls.is_there():
        found |= {f"power-{name}": (power.campaign, commands[name]) for name in POWER}
    else:
        print("no power cuts: strace is not installed", file=sys.stderr)
    for prefix, (one, names) in DISTURBED.items():
        found |= {f"{prefix}-{name}": (one, commands[name]) for name in names}
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
