"""Unpack files as they are read: .gz, .xz, .bz2, .zst, recognized by their first bytes, and the members of a .zip.

All streams of a file are read, and bytes after the last one are an error: a damaged stream would otherwise silently end
the text. A file that unpacks to more than RATIO times its size is rejected once it has reached FLOOR bytes: text packs
to a third to a twentieth, and a small file that repeats one byte would fill the disk.
"""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lmtool.data.remote import is_address, open_address
from lmtool.errors import RecordError, UserError
from lmtool.system.terminal import size_text

READ = 1 << 16  # packed bytes read at a time
BUFFER = 4 << 20  # unpacked bytes
FLOOR = 64 << 20  # bytes to which any file may unpack
RATIO = 200  # maximum unpacked size over packed size beyond FLOOR, unless RATIO_VARIABLE is set
RATIO_VARIABLE = "LMTOOL_UNPACK_RATIO"
DICTIONARY = 1 << 30  # maximum bytes of memory for a .xz; `xz -9` needs 65 MiB
HEAD = 256  # bytes by which a file is recognized
FIRST_BYTES = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"BZh91AY&SY": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
DAMAGES = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)


def open_files(path: str, member: str) -> Iterator[IO[bytes]]:
    """Yield the contents of a file, unpacked: one, or those of the members of a .zip.

    Reading them raises one of DAMAGES or OSError if the file is damaged, and UserError if it unpacks to too much.
    """
    with open_address(path) if is_address(path) else Path(path).open("rb") as raw:
        yield from unpacked(raw, path, member)


def unpacked(raw: io.BufferedReader, path: str, member: str = "") -> Iterator[io.BufferedReader]:
    """Yield the contents of an open file, as open_files does."""
    with _Counted(raw) as packed:
        match _packing(PurePosixPath(path).suffix, raw.peek(HEAD)[:HEAD]):
            case ".gz":
                with gzip.open(packed) as handle:
                    yield _limited(handle, packed, path)
            case ".xz":
                stream = partial(lzma.LZMADecompressor, memlimit=DICTIONARY)
                yield _limited(_Streams(packed, stream, padding=4), packed, path)
            case ".bz2":
                yield _limited(_Streams(packed, bz2.BZ2Decompressor), packed, path)
            case ".zst":
                yield _limited(_zstandard(packed), packed, path)
            case ".zip":
                yield from _members(packed, path, member)
            case _:
                yield raw


def _packing(suffix: str, head: bytes) -> str:
    """Return how a file is packed, as a suffix, given its first bytes: plain text may be named .gz, and a gzip file
    anything; what is neither packed nor text is unpacked as its name says, for the error.
    """
    found = [packing for first, packing in FIRST_BYTES.items() if head.startswith(first) and suffix != ".zip"]
    letters = head.decode(errors="ignore").encode()  # the last one of the head may be cut
    is_text = b"\0" not in head and head.startswith(letters) and letters[:1] == head[:1]
    return found[0] if found else "" if is_text and suffix in FIRST_BYTES.values() else suffix


class _Counted(io.BufferedReader):
    """A file that counts the bytes read from it: of a pipe those that have arrived, at most the number asked for."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size) if self.seekable() else self.raw.read1(size or -1)  # type: ignore[attr-defined]
        self.count += len(block)
        return block


class _Streams(io.RawIOBase):
    """The streams of a .xz or .bz2 file, one after the other.

    lzma.open and bz2.open silently stop before bytes that do not begin a stream.
    """

    def __init__(self, file: IO[bytes], new_stream: Callable[[], Any], padding: int = 0) -> None:
        """padding: number of which the zeros between streams are a multiple; 0 if zeros are not allowed."""
        self._file, self._new_stream, self._padding = file, new_stream, padding
        self._stream = new_stream()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            packed = b""
            if self._stream.eof:
                packed = self._next_stream()
                if not packed:
                    return 0
            elif self._stream.needs_input:
                packed = self._file.read(READ)
                if not packed:
                    raise EOFError("it ends within a stream")
            unpacked = self._stream.decompress(packed, len(buffer))
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)

    def _next_stream(self) -> bytes:
        """Start the next stream and return its first bytes, or b"" at the end of the file."""
        rest: bytes = self._stream.unused_data
        zeros = 0
        while not (begin := rest.lstrip(b"\0") if self._padding else rest):
            zeros += len(rest)
            rest = self._file.read(READ)
            if not rest:
                break
        zeros += len(rest) - len(begin)
        if zeros and zeros % self._padding:
            raise EOFError("there is an incomplete stream after the last one")
        if begin:
            self._stream = self._new_stream()
        return begin


class _Limited(io.RawIOBase):
    """The unpacked bytes of a file; reading raises RecordError if they are too many for its size."""

    def __init__(self, file: Any, packed: _Counted, name: str, before: int) -> None:
        """before: unpacked bytes of the file's other members."""
        self._readinto = getattr(file, "readinto1", file.readinto)  # the former does not wait for a full buffer
        self._packed, self.name = packed, name
        self.size = before
        self._ratio = _ratio()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = int(self._readinto(memoryview(buffer)[:READ]))  # pyarrow loses what a damage ends
        self.size += size
        if self.size > FLOOR and self.size > self._ratio * self._packed.count:
            raise RecordError(
                f"{self.name} unpacks to over {self._ratio:g} times its size, {size_text(self.size)} so far: such "
                f"files fill disks; if it is right, set {RATIO_VARIABLE}=1e9"
            )
        return size


def _limited(file: Any, packed: _Counted, name: str) -> io.BufferedReader:
    return io.BufferedReader(_Limited(file, packed, name, 0), BUFFER)


def _ratio() -> float:
    """Return RATIO, or the value of the environment variable. Raises UserError if it is not a number above 0."""
    value = os.environ.get(RATIO_VARIABLE) or str(RATIO)
    try:
        ratio = float(value)
    except ValueError:
        ratio = 0.0
    if not ratio > 0:
        raise UserError(
            f"{RATIO_VARIABLE}={value}: must be a number above 0, the maximum ratio of unpacked to packed size"
        )
    return ratio


def _zstandard(file: _Counted) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise UserError('a .zst file needs pyarrow: pip install "lmtool[arrow]"') from None
    return pa.CompressedInputStream(file, "zstd")


def _members(file: _Counted, path: str, member: str) -> Iterator[io.BufferedReader]:
    archive = _archive(file, path)
    with archive:
        files = sorted(info.filename for info in archive.infolist() if not info.is_dir())
        chosen = [name for name in files if _is_chosen(name, member)]
        if not chosen:
            shown = ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
            raise UserError(f"{path} has no member {member!r}: it has {shown}")
        size = 0
        for name in chosen:
            try:
                opened = archive.open(name)
            except (RuntimeError, struct.error, ValueError) as error:  # with a password, or packed in an unusual way
                raise UserError(f"{path}: {name} cannot be unpacked ({error}): pack it without") from error
            with opened:
                limited = _Limited(opened, file, f"{path}::{name}", size)
                yield io.BufferedReader(limited, BUFFER)
                size = limited.size


def _is_chosen(name: str, member: str) -> bool:
    """Return whether a pattern, "" for all, has a file of an archive; hidden ones and macOS's only by their name."""
    hidden = any((part.startswith(".") and part.strip(".")) or part == "__MACOSX" for part in name.split("/"))
    return name == member or (not hidden and fnmatch.fnmatchcase(name, member or "*"))


def _archive(file: _Counted, path: str) -> zipfile.ZipFile:
    """Open an archive. Raises UserError if its list of members is damaged, for which zipfile has many exceptions."""
    try:
        return zipfile.ZipFile(file)
    except (RuntimeError, struct.error, ValueError, OverflowError, IndexError) as error:
        raise UserError(f"{path} cannot be unpacked ({error}): fetch it again") from error
