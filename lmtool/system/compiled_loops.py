"""Where numba keeps the compiled loops, for a package and a home folder that cannot be written to.

numba keeps them beside their Python files, else in the user's cache folder, and where it can do neither, as for a user
without a home folder of a package that root installed, it raises an exception at import. Then they are compiled for
this process alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = "NUMBA_CACHE_DIR"  # numba's own setting
PACKAGE = Path(__file__).resolve().parent.parent


def use_writable_cache(package: Path = PACKAGE) -> None:
    """Have numba keep what it compiles in a folder of this process, removed at its end, where it has no other place.

    To be called before numba is imported. Nothing is done where NUMBA_CACHE_DIR names a folder.
    """
    if os.environ.get(FOLDER) or "numba" in sys.modules or _is_writable(package) or _is_writable(_users_cache()):
        return
    import atexit
    import shutil
    import tempfile

    # Not a name that others could guess: what is in the folder is run.
    folder = tempfile.mkdtemp(prefix="lmtool-compiled-")
    os.environ[FOLDER] = folder
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # a fork has not made it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _users_cache() -> Path:
    """The user's cache folder, as numba finds it on Linux."""
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named or os.path.expanduser("~/.cache")) / "numba"


def _is_writable(folder: Path) -> bool:
    """Whether a folder can be written to, or made."""
    existing = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    return existing is not None and os.access(existing, os.W_OK | os.X_OK)
