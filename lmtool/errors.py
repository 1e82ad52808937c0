"""The exceptions that are no faults of the program: the user can put it right, or has ended it."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in a setting, a file or the surroundings (no disk space, no permission).

    The message is one line: what is wrong, where, and the remedy. The command line prints it
    without a traceback and exits with code 2.
    """


class Interrupted(KeyboardInterrupt):
    """A signal has ended the work. signal: its number; the exit code is 128 more, as shells have it."""

    def __init__(self, signal: int, message: str) -> None:
        super().__init__(signal, message)  # all of it, so that it can be sent from process to process
        self.signal = signal
        self.message = message

    def __str__(self) -> str:
        return self.message
