"""Unpack files as they are read: .gz, .xz, .bz2, .zst, recognized by their first bytes, and the members of a .zip.

All streams of a file are read, and bytes after the last one are an error: a damaged stream would otherwise silently end
the text. A file that unpacks to more than RATIO times its size is rejected once it has reached FLOOR bytes: text is
packed to between a third and a twentieth of its size, but a small file that repeats one byte could fill the disk.
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
BUFFER = 4 << 20  # unpacked bytes in a buffer
FLOOR = 64 << 20  # bytes to which any file may unpack
RATIO = 200  # maximum unpacked size over packed size beyond FLOOR, unless RATIO_VARIABLE is set
RATIO_VARIABLE = "LMTOOL_UNPACK_RATIO"
DICTIONARY = 1 << 30  # maximum bytes of memory for a .xz; `xz -9` needs 65 MiB
HEAD = 256  # bytes from which the format of a file is recognized
FIRST_BYTES = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"BZh91AY&SY": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
DAMAGES = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)


def open_files(path: str, member: str) -> Iterator[IO[bytes]]:
    """Yield the unpacked contents of a file, or of each member of a .zip.

    Reading them raises one of DAMAGES or OSError if the file is damaged, and UserError if it unpacks to too much.
    """
    with open_address(path) if is_address(path) else Path(path).open("rb") as raw:
        yield from unpack(raw, path, member)


def unpack(raw: io.BufferedReader, path: str, member: str = "") -> Iterator[io.BufferedReader]:
    """Yield the contents of an open file, like open_files."""
    with _Counted(raw) as packed:
        match _packing(PurePosixPath(path).suffix, raw.peek(HEAD)[:HEAD]):
            case ".gz":
                with gzip.open(packed) as handle:
                    yield _limit_size(_pieces(handle), packed, path)
            case ".xz":
                pieces = _streams(packed, partial(lzma.LZMADecompressor, memlimit=DICTIONARY), padding=4)
                yield _limit_size(pieces, packed, path)
            case ".bz2":
                yield _limit_size(_streams(packed, bz2.BZ2Decompressor), packed, path)
            case ".zst":
                yield _limit_size(_pieces(_zstandard(packed)), packed, path)
            case ".zip":
                yield from _members(packed, path, member)
            case _:
                yield raw


def _packing(suffix: str, head: bytes) -> str:
    """Return the format of a packed file, as a suffix, given its first bytes: plain text may be named .gz, and a gzip
    file may have any name. A file that is neither packed nor text is unpacked according to its name, for the error.
    """
    found = [packing for first, packing in FIRST_BYTES.items() if head.startswith(first) and suffix != ".zip"]
    letters = head.decode(errors="ignore").encode()  # the last character of the head may be cut
    is_text = b"\0" not in head and head.startswith(letters) and letters[:1] == head[:1]
    return found[0] if found else "" if is_text and suffix in FIRST_BYTES.values() else suffix


class _Counted(io.BufferedReader):
    """A file that counts the bytes read from it; a pipe returns what has arrived, at most the requested number."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size) if self.seekable() else self.raw.read1(size or -1)  # type: ignore[attr-defined]
        self.count += len(block)
        return block


def _pieces(file: Any) -> Iterator[bytes]:
    return iter(partial(file.read1, READ), b"")


def _streams(file: IO[bytes], new_stream: Callable[[], Any], padding: int = 0) -> Iterator[bytes]:
    """Yield the content of the streams of a .xz or .bz2 file, one after the other.

    lzma.open and bz2.open silently stop before bytes that do not begin a stream. padding: divisor of the number of
    zeros between streams; 0 if zeros are not allowed.
    """
    packed = file.read(READ)
    while True:
        stream = new_stream()
        while not stream.eof:
            if stream.needs_input and not (packed := packed or file.read(READ)):
                raise EOFError("it ends within a stream")
            yield stream.decompress(packed, READ)
            packed = b""
        rest, zeros = stream.unused_data or file.read(READ), 0
        while padding and rest.startswith(b"\0"):
            packed = rest.lstrip(b"\0")
            zeros += len(rest) - len(packed)
            rest = packed or file.read(READ)
        if padding and zeros % padding:
            raise EOFError("there is an incomplete stream after the last one")
        if not rest:
            return
        packed = rest


class _Limited(io.RawIOBase):
    """The unpacked bytes of a file; reading raises RecordError if they are too many for its size."""

    def __init__(self, pieces: Iterator[bytes], packed: _Counted, name: str, before: int) -> None:
        """before: unpacked bytes of the file's other members."""
        self._pieces, self._piece = pieces, memoryview(b"")
        self._packed, self.name, self.size = packed, name, before
        self._ratio = _ratio()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        size = min(len(buffer), len(self._piece))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        self.size += size
        if self.size > FLOOR and self.size > self._ratio * self._packed.count:
            raise RecordError(
                f"{self.name} unpacks to over {self._ratio:g} times its size, {size_text(self.size)} so far: such "
                f"files fill disks; if it is right, set {RATIO_VARIABLE}=1e9"
            )
        return size


def _limit_size(pieces: Iterator[bytes], packed: _Counted, name: str) -> io.BufferedReader:
    return io.BufferedReader(_Limited(pieces, packed, name, 0), BUFFER)


def _ratio() -> float:
    """Return RATIO, or the value of the environment variable."""
    from lmtool.system.arrays import decimal  # imports numpy, which would delay composing settings

    value = os.environ.get(RATIO_VARIABLE) or str(RATIO)
    ratio = decimal(value)
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
    where, size = path, 0
    try:
        with zipfile.ZipFile(file) as archive:
            files = sorted(info.filename for info in archive.infolist() if not info.is_dir())
            chosen = [name for name in files if _is_chosen(name, member)]
            if not chosen:
                shown = ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
                raise UserError(f"{path} has no member {member!r}: it has {shown}")
            for name in chosen:
                where = f"{path}: {name}"
                with archive.open(name) as opened:
                    limited = _Limited(_pieces(opened), file, f"{path}::{name}", size)
                    yield io.BufferedReader(limited, BUFFER)
                    size = limited.size
    except (RuntimeError, struct.error, ValueError, OverflowError, IndexError) as error:  # zipfile raises all of these
        remedy = "fetch it again, or pack it without a password, as .zip usually is"
        raise UserError(f"{where} cannot be unpacked ({error}): {remedy}") from error


def _is_chosen(name: str, member: str) -> bool:
    """Return whether a pattern ("" for all) matches a file of an archive; hidden and macOS's files need their name."""
    hidden = any((part.startswith(".") and part.strip(".")) or part == "__MACOSX" for part in name.split("/"))
    return name == member or (not hidden and fnmatch.fnmatchcase(name, member or "*"))
