"""Ctrl-C and SIGTERM end a training at the next step, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lmtool.errors import Interrupted


class Stop:
    """Whether a signal has asked for the end, and which; 0: none."""

    def __init__(self) -> None:
        self.signal = 0


@contextmanager
def signals_kept() -> Iterator[Stop]:
    """While the block runs, SIGINT and SIGTERM only leave a note; the same one again ends the process at once.

    Not another one: torchrun sends SIGTERM after the Ctrl-C that its processes have had too.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # Python hands signals to that one alone
        yield stop
        return

    def leave_a_note(number: int, frame: FrameType | None) -> None:
        if stop.signal == number:
            raise Interrupted(number, "stopped at once: what was done since the last checkpoint is lost")
        stop.signal = stop.signal or number

    before = {number: signal.signal(number, leave_a_note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
