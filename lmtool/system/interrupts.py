"""Ctrl-C while C calls back into Python: such a call lets no exception out, and KeyboardInterrupt would be lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN = 0.05  # seconds until a swallowed SIGINT comes again; a callback takes less


class Interrupts:
    """Whether SIGINT has come."""

    def __init__(self) -> None:
        self.came = False


@contextmanager
def preserve_interrupts() -> Iterator[Interrupts]:
    """While the block runs, a KeyboardInterrupt that is raised in a callback or a finaliser is raised again after it.

    Python prints such an exception and goes on (`sys.unraisablehook`); what called back then fails in a way of its own,
    as LLVM's compiler does in Numba. Only in the main thread, and where SIGINT raises KeyboardInterrupt as Python has
    it.
    """
    interrupts = Interrupts()
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.came = True
        signal.default_int_handler(number, frame)

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        again.append(threading.Timer(AGAIN, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)))
        again[-1].daemon = True
        again[-1].start()

    again: list[threading.Timer] = []
    before = sys.unraisablehook
    sys.unraisablehook = unraisable
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        for timer in again:
            timer.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before
