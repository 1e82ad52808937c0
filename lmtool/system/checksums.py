"""The checksum in each file of lmtool, verified before another library parses the file or any of its numbers is used.

It is written as `"checksum": "xxxxxxxx"`: as the first entry of JSON, in the user block of HDF5 (HEAD bytes that other
programs skip), or in the header of safetensors. It is the CRC-32, in hexadecimal, of the CRC-32s (uint32,
little-endian) of the file's blocks of BLOCK bytes, with zeros for its own digits.
"""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

from lmtool.system import parallel

KEY, ZEROS = "checksum", "00000000"
HEAD = 512  # bytes; the smallest user block of HDF5
BLOCK = 1 << 22
MAX_HEADER = 100_000_000  # bytes; safetensors reads no longer header
_DIGITS = re.compile(rb'"checksum": ?"([^"]{8})"')
_known: dict[tuple[int, ...], tuple[str, bool]] = {}  # of large files that were read


class DamagedFile(OSError):
    """A file whose bytes are not those that were written."""


def seal(path: Path) -> None:
    """Write a file's checksum over ZEROS, which the file must contain."""
    place, _ = _find_digits(path)
    digits = _compute_digits(path, place)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digits.encode())


def verify(path: Path) -> bool:
    """Verify a file and return whether it carries a checksum. Raises DamagedFile, and OSError if it cannot be read."""
    return _check_file(path)[1]


def checksum_of(path: Path) -> str:
    """Return the checksum of a file, whether the file carries it or not. Raises as `verify` does."""
    return _check_file(path)[0]


def _check_file(path: Path) -> tuple[str, bool]:
    """Return a file's checksum and whether the file has it; one of several blocks is read once unless it changes."""
    about = path.stat()
    stamp = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
    if stamp in _known:
        return _known[stamp]
    place, digits = _find_digits(path)
    found = _compute_digits(path, place)
    if digits not in ("", found):
        raise DamagedFile("its checksum differs")
    if about.st_size > BLOCK:
        _known[stamp] = found, bool(digits)
    return found, bool(digits)


def _find_digits(path: Path) -> tuple[int, str]:
    """Return the position and digits of the checksum in a file; without one, the file's size and ""."""
    with path.open("rb") as file:
        head = file.read(HEAD)
        if head[8:9] == b"{":  # safetensors: the length of the header, and the header
            head += file.read(min(int.from_bytes(head[:8], "little"), MAX_HEADER))
        found = _DIGITS.search(head)
        return (found.start(1), found[1].decode("latin-1")) if found else (path.stat().st_size, "")


def _compute_digits(path: Path, place: int) -> str:
    """Compute the checksum of a file, with zeros for the digits at a position, if it has them."""
    blocks = parallel.run((_of_block, path, first, place) for first in range(0, path.stat().st_size, BLOCK))
    return f"{zlib.crc32(struct.pack(f'<{len(blocks)}I', *blocks)):08x}"


def _of_block(path: Path, first: int, place: int) -> int:
    with path.open("rb") as file:
        file.seek(first)
        block = file.read(BLOCK)
    start, end = max(place - first, 0), min(place - first + len(ZEROS), len(block))
    if start < end:  # the block has the digits or a part of them
        block = block[:start] + ZEROS[: end - start].encode() + block[end:]
    return zlib.crc32(block)
