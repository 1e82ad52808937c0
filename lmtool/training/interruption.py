"""SIGINT (Ctrl-C) and SIGTERM end a training after its current step, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lmtool.errors import Interrupted


class Stop:
    """The number of the signal that has come, 0 before."""

    def __init__(self) -> None:
        self.signal = 0


@contextmanager
def signals_noted() -> Iterator[Stop]:
    """While the block runs, SIGINT and SIGTERM are only noted; the same signal again raises Interrupted at once.

    A different one does not: torchrun sends SIGTERM after the SIGINT that its processes have had too.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # the only one that Python delivers signals to
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal == number:
            raise Interrupted(number, "stopped at once: the steps since the last checkpoint are lost")
        stop.signal = stop.signal or number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
