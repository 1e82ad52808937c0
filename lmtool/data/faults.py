"""Faults of records, such as a line that is not UTF-8 or not JSON: how they are treated, and their places."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field

from lmtool.data.encodings import without_marks
from lmtool.errors import RecordError

STOP, SKIP, NULL = "stop", "skip", "null"
SHOWN = 3  # maximum number of faults whose messages are kept


class FileLines(bytes):
    """A block of whole lines of a file. file: its name. first: the number of the block's first line. records: the place
    and the lines of each record; None if each line is a record.
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

    def kept(self, check: Callable[[bytes, str], None], faults: Faults) -> FileLines:
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
    """The number of faults of records that were skipped, and the first messages, which name their places.

    As a context manager, it ends the block at a RecordError and counts it, or raises it if on_error is STOP. setting:
    the name of on_error.
    """

    on_error: str = STOP
    setting: str = "on_error"
    count: int = 0
    of_first: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        passed = isinstance(error, RecordError) and self.on_error != STOP
        self.add([str(error)] if passed else [])
        return passed

    def add(self, messages: list[str]) -> None:
        """Count faults."""
        self.count += len(messages)
        self.of_first = [*self.of_first, *messages][:SHOWN]

    def notes(self) -> list[str]:
        """Return a note of the faults, or nothing without faults."""
        what = "left out" if self.on_error == SKIP else "each an empty row"
        note = f"{self.setting}={self.on_error}: faulty records, {what}: {self.count:,}; {'; '.join(self.of_first)}"
        return [note] if self.count else []


NONE_PASSED = Faults()  # every fault is an error
