"""Standard output, which may be closed, a pipe that nobody reads any more, or a full disk."""

from __future__ import annotations

import os
import sys

from lmtool.errors import UserError


def write_out(text: str = "", *, end: str | None = None) -> None:
    """Print a text; end: what follows it, None to write out what is buffered.

    Raises UserError where it cannot be written, as on a full disk, and BrokenPipeError where the reader has gone.
    """
    if sys.stdout is None:
        return
    try:
        print(text, end=end or "", flush=end is None)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise UserError(f"cannot write standard output: {error.strerror}") from error


def discard_output() -> None:
    """Point standard output nowhere, so that Python does not try again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
