"""Processes that train together, with the environment that torchrun gives them; where one dies, the others are ended as
torchrun ends them: by SIGTERM, then SIGKILL.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from kills.child import LIMIT, Child, End, start

PATIENCE = 30.0  # seconds from SIGTERM to SIGKILL, as torchrun's


def run_ranks(words: list[str], work: Path, size: int, kill: tuple[int, float] | None = None) -> End:
    """Run a line in `size` processes; kill: the rank that dies by SIGKILL, and after how many seconds.

    Returns how the first process ended; by SIGKILL, where one was killed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(port)}
    children = [
        start(words, work, environment=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(size)
    ]
    if kill is not None:
        time.sleep(kill[1])
        was_running = _runs(children[kill[0]])
        children[kill[0]].kill()
    begun = time.monotonic()
    while all(_runs(child) for child in children) and time.monotonic() < begun + LIMIT:
        time.sleep(0.02)
    first = {child.number: _code(child) for child in children}
    if any(code not in (None, 0) for code in first.values()):
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child.number, signal.SIGTERM)
    ends = [child.end(PATIENCE) for child in children]
    if kill is not None and was_running:
        return End(-signal.SIGKILL, ends[0].out, ends[0].err)
    worst = next((end for end in ends if end.code != 0), ends[0])
    return worst


def _code(child: Child) -> int | None:
    """The exit code of a child that has ended and is not waited for; None while it runs."""
    ended = os.waitid(os.P_PID, child.number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if ended is None else ended.si_status


def _runs(child: Child) -> bool:
    return _code(child) is None
