"""Locks for one process at a time, released when the process that holds them ends, even if it is killed.

The package filelock is not used: some of its versions empty the file, and with it the holder's name, when another
process asks; it leaves lock files behind; and without flock it falls back to files that a killed process leaves locked.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lmtool.errors import UserError
from lmtool.system.files import cannot_write

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"


@contextmanager
def folder_lock(folder: Path, lock: str = LOCK) -> Iterator[None]:
    """Lock `folder` for this process until the block ends; a missing folder is created.

    The lock is the system's (flock) on the file `lock` in the folder, which names the holder: a killed process leaves
    the file but no lock. If the file system does not support locks, or on Windows, nothing is locked. Raises UserError
    if another process, or another block of this one, has locked the folder.
    """
    with _opened(folder / lock) as handle:
        if not _take(handle):
            holder = _holder(handle)
            raise UserError(f"{folder} is in use by {holder}: wait until it ends, or choose another folder")
        _name_holder(handle)
        yield


@contextmanager
def wait_for_lock(path: Path, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a file for this process until the block ends, by a lock like `folder_lock` beside it, when it is free.

    waiting: called once, with the holder's name, if it is not free immediately. It works between machines if the file
    system shares its locks, as NFS does.
    """
    lock = path.with_name(f".{path.name}.lock")
    told = False
    while True:
        with _opened(lock) as handle:
            if _take(handle) and _is_file_of(lock, handle):
                _name_holder(handle)
                try:
                    yield
                finally:
                    with suppress(PermissionError):  # Windows removes no open file
                        lock.unlink(missing_ok=True)  # a process that has opened it by now sees that it is gone
                return
            if not told:
                waiting(_holder(handle))
                told = True
        time.sleep(0.2)


def _is_file_of(path: Path, handle: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle.fileno()))
    except OSError:
        return False


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Append mode keeps what the holder wrote. A lock file must not be removed unless those who open it look again
        # (`_is_file_of`): two processes could each lock a file of this name.
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error


def _take(handle: IO[str]) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # the file system does not support locks
    return True


def _holder(handle: IO[str]) -> str:
    handle.seek(0)
    return handle.read().strip() or "another process"


def _name_holder(handle: IO[str]) -> None:
    import socket

    with suppress(OSError):  # on a full disk the lock works, without the holder's name
        os.ftruncate(handle.fileno(), 0)
        # Past the buffer of `handle`, which would be written once more when it is closed, and fail there.
        os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
