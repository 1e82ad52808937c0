"""Locks for one process at a time, released when the process that holds them ends, even if it is killed.

A lock is the system's (flock) on a file that names the holder: a killed process leaves the file but no lock. If the
file system does not support locks, or on Windows, nothing is locked. It works between machines if the file system
shares its locks, as NFS does. The package filelock is not used: some of its versions empty the file, and with it the
holder's name, when another process asks, and without flock it falls back to files that a killed process leaves locked.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from lmtool.errors import UserError
from lmtool.system.files import cannot_write

if sys.platform != "win32":
    import fcntl


def folder_lock(folder: Path, name: str = ".lock") -> AbstractContextManager[None]:
    """Lock a folder, made if missing, by the file `name` in it until the block ends; UserError if it is locked."""

    def refuse(holder: str) -> None:
        raise UserError(f"{folder} is in use by {holder}: wait until it ends, or choose another folder")

    return _held(folder / name, refuse)


def wait_for_lock(path: Path, waiting: Callable[[str], None]) -> AbstractContextManager[None]:
    """Lock a file, by a lock file beside it, as soon as it is free, until the block ends.

    waiting: called once, with the holder's name, if it is not free immediately.
    """
    return _held(path.with_name(f".{path.name}.lock"), waiting)


@contextmanager
def _held(lock: Path, busy: Callable[[str], None]) -> Iterator[None]:
    """Lock a lock file until the block ends, then remove it. busy: called once, with the holder, if it is locked."""
    told = False
    while True:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            handle = lock.open("a+", encoding="utf-8")  # "a" keeps the holder's name
        except OSError as error:
            raise cannot_write(lock, error) from error
        with handle:
            if _take(handle.fileno()):
                if not _is_at(lock, handle.fileno()):  # the last holder has removed it; two could hold this name
                    continue
                _name_holder(handle.fileno())
                try:
                    yield
                finally:
                    with suppress(PermissionError):  # Windows cannot remove an open file
                        lock.unlink(missing_ok=True)
                return
            if not told:
                handle.seek(0)
                busy(handle.read().strip() or "another process")
                told = True
        time.sleep(0.2)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _take(handle: int) -> bool:
    try:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # the file system does not support locks
    return True


def _name_holder(handle: int) -> None:
    import socket

    with suppress(OSError):  # on a full disk the lock works, without the holder's name
        os.ftruncate(handle, 0)
        # Without Python's buffer, which would be written again when the file is closed, and fail there.
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
