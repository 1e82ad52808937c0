"""Text files as blocks of whole lines: plain, .gz, .xz, .bz2, or a member of a .zip; always UTF-8."""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lmtool.errors import UserError

BLOCK = 4 << 20  # bytes read at once
LONGEST_LINE = 64 << 20  # bytes; more than this in one line is not text
MEMBER = "::"  # archive.zip::folder/file.txt


def read_blocks(name: str) -> Iterator[bytes]:
    """Blocks of whole lines of a text file, each valid UTF-8 and ending in a newline.

    name: a path; for a .zip `PATH::MEMBER`, where MEMBER may be a pattern such as `*.txt`, or the path alone for all
    its files, in the order of their names. Raises UserError for a file that is missing, cannot be unpacked, is empty or
    is not UTF-8 text.
    """
    path, _, member = name.partition(MEMBER)
    try:
        yield from read_stream(_open(Path(path), member), name)
    except FileNotFoundError:
        raise UserError(f"no file {path}: check the path, or set LMTOOL_DATA to the folder it is in") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise UserError(f"{name} cannot be unpacked ({error}): fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}") from error


def read_stream(handles: Iterator[IO[bytes]], name: str) -> Iterator[bytes]:
    """Blocks of whole lines of open files, such as standard input; `name` is what errors call them.

    Raises UserError for a text that is empty or is not UTF-8.
    """
    line = 1
    empty = True
    for block in _whole_lines(handles, name):
        _check_text(block, name, line)
        line += block.count(b"\n")
        empty = empty and not block.strip()
        yield block
    if empty:
        raise UserError(f"{name} is empty: give a file with text in it")


def sha256_of(path: Path) -> str:
    """SHA-256 of the bytes of a file, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _open(path: Path, member: str) -> Iterator[IO[bytes]]:
    match path.suffix:
        case ".gz":
            with gzip.open(path, "rb") as handle:
                yield handle  # type: ignore[misc]
        case ".xz":
            with lzma.open(path, "rb") as handle:
                yield handle
        case ".bz2":
            with bz2.open(path, "rb") as handle:
                yield handle
        case ".zip":
            yield from _members(path, member)
        case _:
            with path.open("rb") as handle:
                yield handle


def _members(path: Path, member: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive:
        files = sorted(info.filename for info in archive.infolist() if not info.is_dir())
        chosen = [name for name in files if fnmatch.fnmatchcase(name, member or "*")]
        if not chosen:
            shown = ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
            raise UserError(f"{path} has no member {member!r}: it has {shown}")
        for name in chosen:
            with archive.open(name) as handle:
                yield handle


def _whole_lines(handles: Iterator[IO[bytes]], name: str) -> Iterator[bytes]:
    for handle in handles:
        waiting: list[bytes] = []  # the pieces of a line that has not ended yet
        waiting_bytes = 0
        while block := handle.read(BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join([*waiting, block[:cut]])
                waiting, waiting_bytes = [], 0
            waiting.append(block[cut:])
            waiting_bytes += len(block) - cut
            if waiting_bytes > LONGEST_LINE:
                raise UserError(f"{name} has a line of over {LONGEST_LINE >> 20} MiB: is it one sentence per line?")
        if waiting_bytes:
            yield b"".join([*waiting, b"\n"])


def _check_text(block: bytes, name: str, line: int) -> None:
    if b"\0" in block:
        line += block.count(b"\n", 0, block.index(b"\0"))
        raise UserError(f"{name}, line {line}: a NUL byte: this is not a text file")
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        line += block.count(b"\n", 0, error.start)
        raise UserError(
            f"{name}, line {line}: byte 0x{block[error.start]:02x} is not UTF-8: convert the file, as with iconv"
        ) from None


def read_text(name: str) -> str:
    """A whole small text file, such as a word list. Raises UserError as read_blocks does."""
    buffer = io.BytesIO()
    for block in read_blocks(name):
        buffer.write(block)
    return buffer.getvalue().decode("utf-8")
