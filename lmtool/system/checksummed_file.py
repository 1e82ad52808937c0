"""Checksums of all blocks of a file, verified before another library parses it or a number of it is used.

A sealed file begins with a header of HEADER bytes of text, which HDF5 calls a user block and skips. After the content
follows the table: the CRC-32 of each block of BLOCK bytes, uint32, little-endian; the first block excludes the header,
the last one may be shorter. The header has the length of the content, and the checksums of the table and of itself.
"""

from __future__ import annotations

import os
import struct
import zlib
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from lmtool.system import parallel

HEADER = 512  # the smallest user block of HDF5
BLOCK = 1 << 16
BLOCKS_PER_READ = 64
MIN_PARALLEL = 1 << 25  # bytes; smaller files are verified by one thread
MAGIC = b"lmtool sealed file 1\n"
Checksums = tuple[int, ...]
_verified: set[tuple[int, int, int, int]] = set()  # files that this process, or its parent, has verified


class DamagedFile(OSError):
    """A file whose bytes are not those that were written."""


class Header(NamedTuple):
    """content: the length in bytes of header and content; the table follows. table: its checksum."""

    content: int
    table: int

    @property
    def blocks(self) -> int:
        """The number of blocks, and of the table's checksums."""
        return -(-self.content // BLOCK)

    def as_bytes(self) -> bytes:
        """Return the header as bytes of a file."""
        text = MAGIC + f"content {self.content}\nblock {BLOCK}\nchecksums {self.table:08x}\n".encode()
        text = text.ljust(HEADER - len("header 01234567\n"), b"\n")
        return text + f"header {zlib.crc32(text):08x}\n".encode()

    @classmethod
    def parse(cls, written: bytes) -> Header | None:
        """Parse the header of a file; return None if the file is not sealed. Raises DamagedFile."""
        if not written.startswith(MAGIC):
            return None
        try:
            names = written.decode("ascii").split()
            header = cls(int(names[names.index("content") + 1]), int(names[names.index("checksums") + 1], 16))
        except (ValueError, IndexError):
            header = None
        if header is None or header.as_bytes() != written:
            raise DamagedFile("the checksum of its header differs")
        return header


def seal(path: Path) -> None:
    """Seal a file, whose first HEADER bytes are free. Raises OSError if it cannot be written."""
    with path.open("r+b") as file:
        file.seek(HEADER)
        blocks = chain([file.read(BLOCK - HEADER)], iter(partial(file.read, BLOCK), b""))
        checksums = [zlib.crc32(block) for block in blocks]
        table = struct.pack(f"<{len(checksums)}I", *checksums)
        content = file.tell()
        file.write(table)
        file.seek(0)
        file.write(Header(content, zlib.crc32(table)).as_bytes())


def verify(path: Path) -> bool:
    """Verify a file and return True if it is sealed, else False; each is read once per process unless it changes.

    Raises DamagedFile, with the place, if a byte has changed, and OSError if it cannot be read.
    """
    with path.open("rb") as file:
        header = read_header(file)
        if header is None:
            return False
        about = os.fstat(file.fileno())
        stamp = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        if stamp in _verified:
            return True
        checksums = read_table(file, header, about.st_size)
    pieces = parallel.cut_evenly(header.blocks, None if header.content > MIN_PARALLEL else 1)
    parallel.run((_verify_blocks, path, header.content, checksums, first, last) for first, last in pieces)
    _verified.add(stamp)
    return True


def checksum_of(path: Path) -> str:
    """Return the CRC-32 of a file, in hexadecimal; of a sealed file only of its header, which has the other checksums.

    Raises DamagedFile and OSError.
    """
    checksum = 0
    with path.open("rb", buffering=0) as file:
        if read_header(file) is not None:
            file.seek(0)
            return f"{zlib.crc32(file.read(HEADER)):08x}"
        file.seek(0)
        while piece := file.read(BLOCKS_PER_READ * BLOCK):
            checksum = zlib.crc32(piece, checksum)
    return f"{checksum:08x}"


def read_header(file: IO[bytes]) -> Header | None:
    """Read the header of an open file; return None if the file is not sealed. Raises DamagedFile."""
    file.seek(0)
    return Header.parse(file.read(HEADER))


def read_table(file: IO[bytes], header: Header, size: int) -> Checksums:
    """Read the checksums of the blocks of an open file of `size` bytes. Raises DamagedFile."""
    if size != header.content + 4 * header.blocks:
        raise DamagedFile(f"it has {size:,} bytes, not {header.content + 4 * header.blocks:,}")
    file.seek(header.content)
    table = file.read(4 * header.blocks)
    if zlib.crc32(table) != header.table:
        raise DamagedFile("the checksum of its table differs")
    return struct.unpack(f"<{header.blocks}I", table)


def _verify_blocks(path: Path, content: int, checksums: Checksums, first: int, last: int) -> None:
    with path.open("rb", buffering=0) as file:
        file.seek(first * BLOCK)
        for block in range(first, last, BLOCKS_PER_READ):
            start, end = block * BLOCK, min(min(block + BLOCKS_PER_READ, last) * BLOCK, content)
            piece = bytearray(end - start)
            length = file.readinto(piece)
            if length != end - start:
                raise DamagedFile(f"it ends at byte {start + (length or 0):,}")
            _compare(piece, start, checksums)


def _compare(content: bytes | bytearray, start: int, checksums: Checksums) -> None:
    """Raise DamagedFile unless the checksums of whole blocks, the first of which begins at byte `start`, are right."""
    view = memoryview(content)
    for at in range(0, len(view), BLOCK):
        skipped = HEADER if start + at == 0 else 0
        if zlib.crc32(view[at + skipped : at + BLOCK]) != checksums[(start + at) // BLOCK]:
            last = start + min(at + BLOCK, len(view))
            raise DamagedFile(f"a checksum differs between bytes {start + at:,} and {last:,}")
