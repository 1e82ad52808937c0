"""Exceptions that are not faults of the program: mistakes that the user can correct, and interruptions."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

MAX_MESSAGE = 2000  # letters; only what the user gave makes messages longer, e.g. a file without line ends


class UserError(Exception):
    """A mistake in a setting, a file or the environment (no disk space, no permission).

    The message is one line: what is wrong, where, and the remedy. Line ends and other characters that cannot be
    printed, which come with what the user gave, are shown as escapes, and the middle of a long message is left out.
    The command line prints it without a traceback and exits with code 2.

    >>> try:
    ...     lmtool.load("nowhere")
    ... except lmtool.UserError as error:
    ...     print(error)
    no run folder nowhere: check the path
    """

    def __str__(self) -> str:
        message, half = escape_unprintable(str(self.args[0]) if self.args else ""), MAX_MESSAGE // 2
        return message if len(message) <= MAX_MESSAGE else f"{message[:half]} [...] {message[-half:]}"


class RecordError(UserError):
    """A fault of the data of one record, or of a file from some place on, which on_error= may pass over."""


def escape_unprintable(text: str) -> str:
    """Return a text with escapes instead of line ends, control characters and others that a terminal does not show."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # which no name or path may have
# Control characters but tab and newline, those that turn the direction of writing (Trojan Source, Boucher & Anderson
# 2021; marks of direction, which turn no letters, stay), and halves of surrogate pairs, which no encoding has.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Return lines of text with escapes instead of control sequences, which words of a vocabulary may contain."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def prefix_user_errors(where: str) -> Iterator[None]:
    """Put the place before the message of a UserError that the block raises."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


# Errors of the system about a path itself, for any operation.
_PATH_ERRORS = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ESTALE, errno.EIO)


@contextmanager
def translate_path_errors() -> Iterator[None]:
    """Raise UserError instead of OSError for a path that is too long, or below a folder that may not be entered."""
    try:
        yield
    except OSError as error:
        if error.errno not in _PATH_ERRORS or error.filename is None:
            raise
        raise UserError(f"{error.filename}: {error.strerror}; name another path, or allow this one") from error


class Interrupted(KeyboardInterrupt):
    """A signal ended the work. signal: its number; the exit code is 128 + signal, the shells' convention."""

    def __init__(self, signal: int, message: str) -> None:
        super().__init__(signal, message)  # all arguments, so that it can be pickled
        self.signal = signal

    def __str__(self) -> str:
        return str(self.args[1])
