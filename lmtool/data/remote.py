"""Read files at addresses, such as https://host/a.txt.gz or s3://bucket/part-*.txt, by fsspec.

They are streamed or read in pieces, with retries, and never held in memory as a whole.
"""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import IO, Any, cast

from lmtool.errors import UserError, first_line

MARK = "://"
REFERENCE = "reference"  # protocol of fsspec that computes files; a run that names such a store is not trusted
GLOB = re.compile(r"[\[\]{}*?\\]")
TRIES = 5  # attempts per read
READ = 1 << 20  # bytes requested at a time
PIECE = 1 << 16  # bytes requested at a time if the file is not read from beginning to end
NOT_FOUND = (404, 410)  # status codes of a missing file
WAIT = 0.5  # seconds before the second attempt; doubled before each further one


def is_address(name: str) -> bool:
    """Return whether a file's name is an address instead of a path."""
    return MARK in name


def as_path(name: str | Path) -> Path:
    """Return the path of a name; for an address a path of the package upath, with the same methods.

    Raises UserError if the package is needed and not installed.
    """
    if not is_address(str(name)):
        return Path(name)
    _require_file(str(name))
    try:
        from upath import UPath
    except ImportError:
        raise UserError(f'{name} is an address: pip install "lmtool[remote]" to read it') from None
    return cast(Path, UPath(str(name)))


def exists(path: Path) -> bool:
    """Return whether a file or address exists; failed requests are retried.

    Raises UserError if the address cannot be reached.
    """
    name = str(path)
    if not is_address(name):
        return path.is_file()
    files, inside = _system(name)
    for attempt in range(TRIES):
        try:
            files.info(inside)
            return True
        except Exception as error:  # each file system has its own
            if _is_missing(error):
                return False
            if attempt == TRIES - 1:
                raise UserError(f"{name} cannot be reached: {first_line(error)}") from error
            time.sleep(WAIT * 2**attempt)
    raise AssertionError("unreachable")


def _is_missing(error: Exception) -> bool:
    """Return whether an error means that a file is missing; with another cause the server does not answer."""
    if not isinstance(error, FileNotFoundError):
        return False
    cause = error.__cause__
    return isinstance(cause, FileNotFoundError | None) or getattr(cause, "status", None) in NOT_FOUND


def absolute(path: Path) -> str:
    """Return a path's name that is valid from every folder."""
    return str(path) if is_address(str(path)) else str(path.resolve())


def escaped(address: str) -> str:
    """Return an address for a program that takes addresses as globs without %-escapes, as Hadoop does."""
    return GLOB.sub(r"\\\g<0>", address)


def find_addresses(name: str) -> list[str]:
    """Return the files of an address: itself, the matches of its glob, or the files of a folder, sorted by name.

    Raises UserError if the address's file system cannot be used or does not answer.
    """
    files, path = _system(name)
    try:
        if any(mark in path for mark in "*?["):
            found = sorted(files.glob(path))
        elif files.isdir(path):
            found = sorted(entry["name"] for entry in files.ls(path) if entry["type"] == "file")
        else:
            found = [path] if files.exists(path) else []
    except Exception as error:  # each file system has its own
        raise UserError(f"{name} cannot be reached: {first_line(error)}") from error
    return [files.unstrip_protocol(file) for file in found]


def stamp_of(name: str) -> list[object]:
    """Return plain values that differ if the file at an address may have changed: its size and its server's
    metadata.
    """
    files, path = _system(name)
    try:
        info = files.info(path)
    except Exception as error:
        raise UserError(f"{name} cannot be reached: {first_line(error)}") from error
    known = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created", "md5Hash", "sha256", "generation")
    return [name, info.get("size"), *(str(info[key]) for key in known if info.get(key) is not None)]


def open_address(name: str) -> IO[bytes]:
    """Open an address to be read from its start; a failed read is retried from the same position.

    Raises UserError if the address cannot be opened.
    """
    files, path = _system(name)
    return io.BufferedReader(_Retried(files, path, name), READ)


def open_pieces(name: str) -> IO[bytes]:
    """Open an address to be read at any position; a failed read is retried.

    Raises UserError if the address cannot be opened.
    """
    files, path = _system(name)
    return io.BufferedReader(_Pieces(files, path, name), PIECE)


def _require_file(address: str) -> None:
    if REFERENCE in address.split(":"):
        raise UserError(f"{address} is not the address of a file: {REFERENCE} computes files from templates")


def _system(name: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise UserError(f'{name} is an address: pip install "lmtool[remote]" to read it') from None
    _require_file(name)
    try:
        files, path = fsspec.core.url_to_fs(name)
        return files, str(path)
    except ImportError as error:
        raise UserError(f"{name} cannot be read: {first_line(error)}") from error
    except ValueError as error:
        raise UserError(f"{name}: {first_line(error)}; check the address") from error


class _Retried(io.RawIOBase):
    """A remote file as raw bytes, read from its start, with retries."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files, self._path, self._name = files, path, name
        self._at = 0
        self._handle: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        for attempt in range(TRIES):
            try:
                if self._handle is None:
                    self._handle = self._opened()
                block = self._handle.read(len(view))
                view[: len(block)] = block
                self._at += len(block)
                return len(block)
            except Exception as error:  # each file system has its own
                if _is_missing(error):
                    raise
                self._drop()
                if attempt == TRIES - 1:
                    raise OSError(f"after {TRIES} tries, at byte {self._at:,}: {first_line(error)}") from error
                time.sleep(WAIT * 2**attempt)
        raise AssertionError("unreachable")

    def _opened(self) -> Any:
        handle = self._open()
        if self._at:
            try:
                handle.seek(self._at)
            except (ValueError, OSError):  # a stream: read it again up to this position
                left = self._at
                while left and (block := handle.read(min(left, 1 << 20))):
                    left -= len(block)
        return handle

    def _open(self) -> Any:
        return self._files.open(self._path, "rb")

    def _drop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                handle.close()
            except Exception:  # it is broken already
                return

    def close(self) -> None:
        self._drop()
        super().close()


class _Pieces(_Retried):
    """A remote file that is read at any position, with retries."""

    def _open(self) -> Any:
        # A small block: bytes fetched beyond a request are rarely requested next.
        return self._files.open(self._path, "rb", block_size=PIECE, cache_type="readahead")

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            offset += int(self._files.info(self._path)["size"])
        elif whence == io.SEEK_CUR:
            offset += self._at
        if offset != self._at and self._handle is not None:
            try:
                self._handle.seek(offset)
            except Exception:  # each file system has its own; the next read opens it again
                self._drop()
        self._at = offset
        return offset
