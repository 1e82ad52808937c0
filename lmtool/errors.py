"""The one exception that means: the user can put this right."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in a setting, a file or the surroundings (no disk space, no permission).

    The message is one line: what is wrong, where, and the remedy. The command line prints it
    without a traceback and exits with code 2.
    """
