"""Files at addresses, such as https://host/a.txt.gz or s3://bucket/part-*.txt, by fsspec: streamed or read in pieces,
retried, never held whole.
"""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import IO, Any, cast

from lmtool.errors import UserError, first_line

MARK = "://"
REFERENCE = "reference"  # of fsspec's; a run may name its store, and no run says what is computed
GLOB = re.compile(r"[\[\]{}*?\\]")
TRIES = 5  # of each read
READ = 1 << 20  # bytes asked for at once
PIECE = 1 << 16  # the same, where it is not read from beginning to end
NOT_FOUND = (404, 410)  # what a server answers of a file that it does not have
WAIT = 0.5  # seconds before the second try; twice as long before each further one


def is_address(name: str) -> bool:
    """Whether a file's name is an address, and no path."""
    return MARK in name


def as_path(name: str | Path) -> Path:
    """The path of a name, which may be an address; then of the package upath, with the same methods.

    Raises UserError where it is needed and not installed.
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
    """Whether a file is there, also at an address; a question that fails is asked again.

    Raises UserError where the address cannot be reached.
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
    """Whether a file is not there; with another cause it is a server that does not answer."""
    if not isinstance(error, FileNotFoundError):
        return False
    cause = error.__cause__
    return isinstance(cause, FileNotFoundError | None) or getattr(cause, "status", None) in NOT_FOUND


def absolute(path: Path) -> str:
    """The name of a path that is the same from every folder."""
    return str(path) if is_address(str(path)) else str(path.resolve())


def escaped(address: str) -> str:
    """The address of one file for a program that takes addresses as globs, as Hadoop's do, which know no %20."""
    return GLOB.sub(r"\\\g<0>", address)


def find_addresses(name: str) -> list[str]:
    """The files of an address: itself, those that match its glob, or those of a folder, by their names.

    Raises UserError where the address's file system cannot be used or does not answer.
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
    """What differs whenever the file of an address may have changed: its size, and what its server says of it."""
    files, path = _system(name)
    try:
        info = files.info(path)
    except Exception as error:
        raise UserError(f"{name} cannot be reached: {first_line(error)}") from error
    known = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created", "md5Hash", "sha256", "generation")
    return [name, info.get("size"), *(str(info[key]) for key in known if info.get(key) is not None)]


def open_address(name: str) -> IO[bytes]:
    """The bytes of an address from their start; a read that fails is tried again from where it was.

    Raises UserError where the address cannot be opened.
    """
    files, path = _system(name)
    return io.BufferedReader(_Retried(files, path, name), READ)


def open_pieces(name: str) -> IO[bytes]:
    """The bytes of an address for reading here and there; a read that fails is tried again.

    Raises UserError where the address cannot be opened.
    """
    files, path = _system(name)
    return io.BufferedReader(_Pieces(files, path, name), PIECE)


def _require_file(address: str) -> None:
    if REFERENCE in address.split(":"):
        raise UserError(f"{address} is no address of a file: {REFERENCE} is a list of templates to compute files from")


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
    """A file of a file system as raw bytes."""

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
            except (ValueError, OSError):  # a stream: what was read is read again
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
    """A file of a file system that is read at any place."""

    def _open(self) -> Any:
        # What it would fetch beyond what is asked for is mostly not what is asked for next.
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
            except Exception:  # each file system has its own; it is opened again, and that read is tried again
                self._drop()
        self._at = offset
        return offset
