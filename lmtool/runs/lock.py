"""A lock on a folder, for one process at a time; it ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lmtool.errors import UserError
from lmtool.system.files import cannot_write

LOCK = ".lock"


@contextmanager
def held(folder: Path, lock: str = LOCK) -> Iterator[None]:
    """Hold `folder` for this process until the block ends; a missing folder is created.

    The lock is the system's (flock) on the file `lock` in the folder, which names the holder: a process that is killed
    leaves the file but no lock. Where the file system does not support locks, nothing is held. Raises UserError where
    another process, or another block of this one, holds the folder, and where the folder cannot be written to.
    """
    path = folder / lock
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Append mode leaves what the holder wrote. The file is never removed, else two processes could each lock a file
        # of this name.
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error
    with handle:
        _take(handle, folder)
        yield


def _take(handle: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        handle.seek(0)
        holder = handle.read().strip() or "another process"
        raise UserError(f"{folder} is in use by {holder}: wait until it ends, or choose another folder") from error
    except OSError:
        pass  # the file system does not support locks
    handle.truncate(0)
    with suppress(OSError):  # on a full disk the lock holds, without the holder's name
        handle.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        handle.flush()
