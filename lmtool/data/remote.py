"""Read files at addresses, such as https://host/a.txt.gz or s3://bucket/part-*.txt, by fsspec.

Text is streamed, and a store is copied into the cache folder, both with retries; neither is held in memory as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from lmtool.errors import UserError, first_line
from lmtool.system.files import atomic_write

Answer = TypeVar("Answer")

MARK = "://"
REFERENCE = "reference"  # protocol of fsspec that computes files; a run that names such a store is not trusted
GLOB = re.compile(r"[\[\]{}*?\\]")
TRIES = 5  # attempts per request
READ = 1 << 20  # bytes requested at a time
HEAD = 512  # bytes; a store begins with its checksums
NOT_FOUND = (404, 410)  # status codes of a missing file
WAIT = 0.5  # seconds before the second attempt; doubled before each further one


def is_address(name: str) -> bool:
    """Return whether a file's name is an address instead of a path."""
    return MARK in name


def as_path(name: str | Path) -> Path:
    """Return the path of a name; for an address a path of the package upath, with the same methods."""
    if not is_address(str(name)):
        return Path(name)
    with _explain_errors(str(name)):
        import fsspec
        from upath import UPath

        fsspec.core.url_to_fs(str(name))
        path = cast(Path, UPath(str(name)))
        fsspec.core.url_to_fs(str(path))  # for some protocols, the path has lost the host
    return path


def exists(path: Path) -> bool:
    """Return whether a file or address exists. Raises UserError if the address cannot be reached."""
    name = str(path)
    return _query(name, _info) is not None if is_address(name) else path.is_file()


def _info(files: Any, path: str) -> dict[str, Any] | None:
    """Return a file system's metadata of a file; None if it is missing."""
    try:
        found: dict[str, Any] = files.info(path)
        return found
    except Exception as error:  # each file system has its own
        if _is_missing(error):
            return None
        raise


def _query(name: str, question: Callable[[Any, str], Answer]) -> Answer:
    """Return the result of a query of a file system about the path of an address."""
    files, path = _system(name)
    return _retry(lambda: question(files, path), lambda: f"{name} cannot be reached")


def _retry(request: Callable[[], Answer], failure: Callable[[], str]) -> Answer:
    """Return the result of a request, made up to TRIES times. Raises UserError, which begins with the failure."""
    for attempt in range(TRIES):
        try:
            return request()
        except UserError:
            raise
        except Exception as error:  # each file system has its own
            if attempt == TRIES - 1:
                raise UserError(f"{failure()}: {first_line(error)}") from error
            time.sleep(WAIT * 2**attempt)
    raise AssertionError("unreachable")


def _is_missing(error: Exception) -> bool:
    """Return whether an error means that a file is missing; other causes mean that the server does not respond."""
    if not isinstance(error, FileNotFoundError):
        return False
    cause = error.__cause__
    return isinstance(cause, FileNotFoundError | None) or getattr(cause, "status", None) in NOT_FOUND


def _no_file(address: str) -> UserError:
    return UserError(f"no file at {address}: check the address")


def absolute(path: Path) -> str:
    """Return the name of a path that is valid in every folder."""
    return str(path) if is_address(str(path)) else str(path.resolve())


def escape_glob(address: str) -> str:
    """Return an address for a program that treats addresses as globs without %-escapes, like Hadoop."""
    return GLOB.sub(r"\\\g<0>", address)


def find_addresses(name: str) -> list[str]:
    """Return the files of an address, its glob or its folder, sorted by name; hidden ones only by their address."""

    def found(files: Any, path: str) -> list[str]:
        if any(mark in path for mark in "*?["):
            paths = files.glob(path)
        elif files.isdir(path):
            paths = [entry["name"] for entry in files.ls(path) if entry["type"] == "file"]
        else:
            return [files.unstrip_protocol(path)] if files.exists(path) else []
        return [files.unstrip_protocol(file) for file in sorted(paths) if not file.rpartition("/")[2].startswith(".")]

    return _query(name, found)


def stamp_of(name: str) -> list[object]:
    """Return plain values that differ if the file at an address may have changed: size, and metadata of the server."""
    info = _query(name, _info)
    if info is None:
        raise _no_file(name)
    known = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created", "md5Hash", "sha256", "generation")
    return [name, info.get("size"), *(str(info[key]) for key in known if info.get(key) is not None)]


def open_address(name: str) -> io.BufferedReader:
    """Open an address to be read from its start; a failed read is retried from the same position."""
    files, path = _system(name)
    return io.BufferedReader(_RetryingFile(files, path, name), READ)


def cache_dir() -> Path:
    """Return the folder of downloads: LMTOOL_CACHE, or the user's cache folder. Raises ImportError without pooch."""
    import pooch

    return Path(os.environ.get("LMTOOL_CACHE") or pooch.os_cache("lmtool"))


_copying = threading.Lock()  # threads of a process would write to one temporary file


def local_copy(address: str) -> Path:
    """Return the path of a current copy of the file at an address in the cache folder; create it unless it exists."""
    try:
        folder = cache_dir()
    except ImportError:
        raise UserError(f'{address} must be copied, which needs pooch: pip install "lmtool[remote]"') from None
    with _copying, open_address(address) as file:
        stamp, head = stamp_of(address), file.read(HEAD)
        mark = hashlib.sha256(json.dumps(stamp).encode() + head).hexdigest()[:12]
        copy = folder / f"{mark}-{address.rsplit('/', 1)[-1]}"
        if not copy.is_file():
            with atomic_write(copy) as temporary, temporary.open("wb") as written:
                written.write(head)
                shutil.copyfileobj(file, written, READ)
                if stamp_of(address) != stamp or stamp[1] not in (None, written.tell()):
                    raise UserError(f"{address} changed or ended while it was copied: try again")
    return copy


_making = threading.RLock()  # while file systems are made: hooks and warning filters are global


@contextmanager
def _explain_errors(address: str) -> Iterator[None]:
    """Raise any error of the packages below fsspec as a UserError that names the address; suppress their warnings.

    A file system that cannot be created may also fail in its `__del__`, which Python would print with a traceback.
    """
    if REFERENCE in address.split(":"):
        raise UserError(f"{address} is not the address of a file: {REFERENCE} computes files from templates")
    with _making, warnings.catch_warnings(action="ignore"):
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            yield
        except Exception as error:  # each file system has its own
            traceback.clear_frames(error.__traceback__)  # which delete it
            if getattr(error, "name", None) in ("fsspec", "upath"):
                raise UserError(f'{address} is an address: pip install "lmtool[remote]" to read it') from None
            remedy = "" if isinstance(error, ImportError) else "; check the address"
            raise UserError(f"{address} cannot be read: {first_line(error)}{remedy}") from None
        finally:
            sys.unraisablehook = hook


def _system(name: str) -> tuple[Any, str]:
    with _explain_errors(name):
        import fsspec

        files, path = fsspec.core.url_to_fs(name)
        return files, str(path)


class _RetryingFile(io.RawIOBase):
    """A remote file as raw bytes, read from its start, with retries."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files, self._path, self._name = files, path, name
        self._at = 0
        self._handle: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        failure = f"cannot read {self._name}: after {TRIES} tries, at byte"
        block = _retry(lambda: self._read(len(buffer)), lambda: f"{failure} {self._at:,}")
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def _read(self, size: int) -> bytes:
        try:
            self._handle = self._handle or self._open()
            return bytes(self._handle.read(size))
        except Exception as error:  # each file system has its own
            self._drop()
            if _is_missing(error):
                raise _no_file(self._name) from error
            raise

    def _open(self) -> Any:
        handle = self._files.open(self._path, "rb")
        if self._at:
            try:
                handle.seek(self._at)
            except (ValueError, OSError):  # a stream: read it again up to this position
                left = self._at
                while left and (block := handle.read(min(left, 1 << 20))):
                    left -= len(block)
        return handle

    def _drop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(Exception):  # the connection is already broken
                handle.close()

    def close(self) -> None:
        self._drop()
        super().close()
