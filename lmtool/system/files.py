"""Files that are written whole or not at all, under a temporary name first."""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from lmtool.errors import UserError, first_line

_MASK = os.umask(0)  # it cannot be read without being set
os.umask(_MASK)


def own_mark() -> str:
    """This process among those of all machines, for the names of its temporary files: HOST.NUMBER."""
    return f"{socket.gethostname().replace('.', '-')}.{os.getpid()}"


@contextmanager
def written_whole(path: Path, *, synced: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error.

    The temporary is synced to disk before the rename and removed after a failure, so that `path` holds
    the old file or the new one at every moment. synced=False leaves the syncing to the system, for files that can be
    made again: then a power cut can leave less than the whole. Raises UserError where the disk is full or the
    folder cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{own_mark()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if synced:
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~_MASK)  # some libraries create files that other users cannot read
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be the reason
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def opened(path: Path, *, packed: bool) -> Iterator[IO[bytes]]:
    """A file to write; packed: by gzip, always into the same bytes."""
    if packed:
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 3, raw, mtime=0) as file:
            yield file  # type: ignore[misc]
    else:
        with path.open("wb") as file:
            yield file


def reserve(path: Path, size: int) -> None:
    """Raise OSError now if `size` bytes more cannot be written beside `path`.

    The HDF5 library can crash the process when the disk fills while it writes; so the space is checked first.
    """
    probe = path.with_name(f".{path.name}.{own_mark()}.tmp")
    try:
        with probe.open("wb") as handle:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle.fileno(), 0, size)
    finally:
        probe.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> UserError:
    """The one-line form of a failed write."""
    reason = error.strerror or first_line(error)
    return UserError(f"cannot write {path}: {reason}; free some space, or choose a folder you can write to")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it exists. Raises UserError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path, remedy: str) -> Any:
    """Read JSON. Raises UserError, which ends with `remedy`, where the file is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    except (ValueError, RecursionError) as error:  # of Python's parser, for brackets in brackets
        raise UserError(f"{path} is damaged ({error}); {remedy}") from error
