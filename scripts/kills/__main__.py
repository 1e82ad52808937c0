"""The command line of the campaigns: ./scripts/measure kills [SECONDS] [SEED] [KIND ...]"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # fuzzing and kills are beside each other

from fuzzing.campaign import temporary_folder

from kills import killed, limits, place, power, worst_moments
from kills.commands import COMMANDS
from kills.judge import Budget, Row, table

WRITERS = ["preprocess", "counts", "estimation", "nplm", "eval", "convert", "score", "sweep"]
POWER = [*WRITERS, "ensemble", "tree"]
# Kinds of campaigns, each with the commands that it disturbs.
KINDS = {
    "": (killed.one_to_four_times, list(COMMANDS)),
    "power-": (power.cuts, POWER),
    "size-": (limits.file_sizes, WRITERS),
    "full-": (limits.full_disk, WRITERS),
    "memory-": (
        limits.short_memory,
        ["preprocess", "counts", "estimation", "tuning", "nplm", "nce", "eval", "score"],
    ),
    "read-only-": (limits.read_only, [*POWER, "merge", "report"]),
    "clock-": (limits.clocks, WRITERS),
    "eight-": (killed.eight_at_once, ["estimation", "sweep"]),
}


def main(words: list[str]) -> int:
    """Run campaigns; return the exit code, 1 if anything was found."""
    if words == ["chosen"]:
        return worst_moments.chosen()
    known = kinds()
    parser = argparse.ArgumentParser(prog="./scripts/measure kills", description="see docs/development/reliability.md")
    parser.add_argument("seconds", nargs="?", type=float, default=60.0, help="of each kind")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("kinds", nargs="*", help=f"default: all of {', '.join(known)}")
    parser.add_argument("--most", type=int, default=None, help="maximum number of cases of each kind")
    given = parser.parse_args(words)
    if unknown := [kind for kind in given.kinds if kind not in known]:
        parser.error(f"unknown kind {unknown[0]}: choose from {', '.join(known)}")
    chosen = given.kinds or list(known)
    rows: list[Row] = []
    with temporary_folder("kills-"):
        place.prepare([command for name, command in COMMANDS.items() if any(kind.endswith(name) for kind in chosen)])
        for kind in chosen:
            rows.append(known[kind](Budget(given.seconds, given.seed, given.most)))
            print(table(rows[-1:]).splitlines()[2], flush=True)
    print(table(rows))
    for line, count in sum((row.said for row in rows), Counter[str]()).most_common():
        print(f"{count:5}  {line}")
    return int(any(row.found for row in rows))


def kinds() -> dict[str, Callable[[Budget], Row]]:
    """Return every campaign by its name."""
    return {
        f"{prefix}{name}": partial(campaign, f"{prefix}{name}", COMMANDS[name])
        for prefix, (campaign, names) in KINDS.items()
        for name in names
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
