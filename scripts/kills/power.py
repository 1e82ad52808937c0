"""Power cuts: what strace saw of a command is replayed up to some moment on a file system that forgets what was not
synced, then the same command is run again, or resume=.
"""

from __future__ import annotations

import random
import time

from kills import place, system_calls
from kills.commands import Command
from kills.crash_states import History, lay_out, some_crash
from kills.judge import Row, check_end, check_whole, finish, undisturbed

POSTED = 200  # states drawn without a new one, after which there are no more


def campaign(command: Command, seconds: float, seed: int, most: int | None = None) -> Row:
    """Cut the power of a command for so many seconds, or `most` times."""
    row, rng = Row(f"power {command.name}"), random.Random(seed)
    wanted = undisturbed(command)
    work = place.fresh(command)
    end, history = system_calls.watched(command.words, work)
    if end.code != 0:
        raise RuntimeError(f"{command.name} under strace: {end}")
    begun, seen, again = time.monotonic(), set[int](), 0
    while time.monotonic() < begun + seconds and (most is None or row.cases < most) and again < POSTED:
        about, tree = some_crash(history, rng)
        key = hash(tuple(sorted(tree.items())))
        again = again + 1 if key in seen else 0
        if key in seen:
            continue
        seen.add(key)
        work = place.fresh(command)
        lay_out(tree, work)
        row.cases += 1
        context = f"{' '.join(command.words)}\n{about}\n{_listed(tree, history)}"
        check_whole(row, work, context, cached=False)
        line = command.again(command.words, work)
        check_end(row, command, work, finish(command, line, work), wanted, context)
    row.seconds = time.monotonic() - begun
    return row


def _listed(tree: dict[str, bytes | None], history: History) -> str:
    """What a state has of the files that were there or made at the end, and their sizes."""
    before = history.undisturbed(0)
    new = [(path, content) for path, content in sorted(tree.items()) if path not in before and content is not None]
    return "there: " + ", ".join(f"{path} ({len(content)})" for path, content in new)
