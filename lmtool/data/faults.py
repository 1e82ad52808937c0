"""Faults of records, such as a line that is not UTF-8 or not JSON: how they are found and treated, and their places."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from lmtool.errors import RecordError
from lmtool.system.terminal import note_once

STOP, SKIP, NULL = "stop", "skip", "null"
SHOWN = 3  # maximum number of faults whose messages are kept
# Byte-order marks of other encodings than UTF-8; the mark of UTF-32 LE begins with the mark of UTF-16 LE.
OTHER_MARKS = dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-32")
OTHER_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "UTF-16")
MARKS = re.compile(rb"^(?:\xef\xbb\xbf)+", re.MULTILINE)
KENLM_BINARY = b"mmap lm http://kheafield.com/code"  # first bytes of KenLM's binary files


class FileLines(bytes):
    """A block of whole lines of a file.

    file: its name. first: number of the first line. records: place and lines of each record; None: each line is one.
    """

    file: str
    first: int
    records: list[tuple[str, bytes]] | None

    @classmethod
    def of(cls, block: bytes, file: str, first: int = 1, records: list[tuple[str, bytes]] | None = None) -> FileLines:
        """Return a block with its place."""
        lines = cls(block)
        lines.file, lines.first, lines.records = file, first, records
        return lines

    @classmethod
    def of_block(cls, block: bytes, name: str) -> FileLines:
        """Return a block with its place; a block without one has the lines of the file `name`."""
        return block if isinstance(block, FileLines) else cls.of(block, name)

    @classmethod
    def of_records(cls, records: list[tuple[str, bytes]], file: str) -> FileLines:
        """Return records as a block, without the byte-order marks of their lines."""
        return cls.of(without_marks(b"".join([lines for _, lines in records]), file), file, records=records)

    def without_faults(self, check: Callable[[bytes, str], None], faults: Faults) -> FileLines:
        """Return the block without the records for which check(lines, place) raises RecordError: they are faults."""
        numbered = enumerate(io.BytesIO(self), self.first)
        good = []
        for where, lines in self.records or [(f"{self.file}, line {number}", line) for number, line in numbered]:
            with faults:
                check(lines, where)
                good.append((where, lines))
        return FileLines.of_records(good, self.file)


@dataclass(slots=True)
class Faults:
    """The number of skipped faults of records, and the first messages, which name their places.

    As a context manager, it ends the block at a RecordError and counts it, or raises it if on_error is STOP.
    """

    on_error: str = STOP
    setting: str = "on_error"
    count: int = 0
    first_messages: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        passed = isinstance(error, RecordError) and self.on_error != STOP
        self.add([str(error)] if passed else [])
        return passed

    def add(self, messages: list[str]) -> None:
        """Count faults."""
        self.count += len(messages)
        self.first_messages = [*self.first_messages, *messages][:SHOWN]

    def notes(self) -> list[str]:
        """Return a note of the faults, or nothing without faults."""
        what = "left out" if self.on_error == SKIP else "each an empty row"
        note = (
            f"{self.setting}={self.on_error}: faulty records, {what}: {self.count:,}; {'; '.join(self.first_messages)}"
        )
        return [note] if self.count else []


STOP_AT_FAULTS = Faults()  # every fault is an error


def require_utf8(head: bytes, name: str) -> None:
    """Raise RecordError if the file `name` begins, by these bytes, as UTF-16, UTF-32 or a KenLM binary does."""
    if head.startswith(KENLM_BINARY):
        remedy = "use the ARPA file that it was made from (KenLM cannot write it back)"
        raise RecordError(f"{name} is a KenLM binary, as build_binary writes it: {remedy}")
    for mark, found in OTHER_MARKS.items():
        if head.startswith(mark):
            raise RecordError(f"{name} is {found}, not UTF-8: convert it, e.g. with iconv -f {found} -t UTF-8")


def check_text(lines: bytes, where: str, first: int | None = None) -> None:
    """Raise RecordError if lines are not UTF-8 text. first: number of the first one; None: `where` is their place."""
    what, at = "a NUL byte: this is not text, or not UTF-8; convert UTF-16, e.g. with iconv", lines.find(b"\0")
    if at < 0:
        try:
            lines.decode("utf-8")
            return
        except UnicodeDecodeError as error:
            at = error.start
            what = f"byte 0x{lines[at]:02x} is not UTF-8: convert the file, e.g. with iconv"
    newlines = lines.count(b"\n", 0, at)
    raise RecordError(f"{where}{'' if first is None else f', line {first + newlines}'}: {what}")


def without_marks(lines: bytes, name: str, *, begins_file: bool = False) -> bytes:
    """Return lines without UTF-8's byte-order marks at their starts, with a note of marks within the file."""
    lines = lines.removeprefix(codecs.BOM_UTF8) if begins_file else lines
    if codecs.BOM_UTF8 not in lines:
        return lines
    lines, count = MARKS.subn(b"", lines)
    if count:
        note_once(f"{name}: lines within it begin with byte-order marks, as where files were joined; they are left out")
    return lines
