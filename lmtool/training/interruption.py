"""End a training with a checkpoint after the current step on SIGINT (Ctrl-C) or SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lmtool.errors import Interrupted


class StopRequest:
    """Number of the signal that has been received, 0 before."""

    def __init__(self) -> None:
        self.signal = 0


@contextmanager
def defer_signals() -> Iterator[StopRequest]:
    """Defer SIGINT and SIGTERM while the block runs; repeating the signal raises Interrupted immediately.

    A different signal does not: torchrun sends SIGTERM after a SIGINT that its processes have received too.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # the only one that Python delivers signals to
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal == number:
            raise Interrupted(number, "stopped immediately: the steps since the last checkpoint are lost")
        stop.signal = stop.signal or number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
