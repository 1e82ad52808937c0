"""Read many texts from files in blocks, in order: each line, or each record of JSON Lines or Parquet, is a text.

The same files always give the same blocks, so that work on them can be resumed by the number of a block.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lmtool.data.documents import column_values, json_value, parquet_batches, require_new_names, text_of
from lmtool.data.faults import SKIP, STOP, Faults, check_text, without_marks
from lmtool.data.readers import (
    MEMBER,
    PARQUET,
    batches_of,
    document_lines,
    format_of_name,
    name_of,
    read_errors,
    require_column,
    whole_lines,
)
from lmtool.data.remote import is_address
from lmtool.data.standard_input import INPUT, standard_input
from lmtool.data.tokenizer import TextBlock, line_ends
from lmtool.data.unpacking import open_files
from lmtool.errors import RecordError, UserError

BLOCK_BYTES = 1 << 22  # approximate bytes of text per block
SETTING = "column"
STANDARD = "-"  # instead of a file's name: standard input or output


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Consecutive records of a file: its lines, its objects of JSON, or its rows of Parquet.

    name: name of the file, for errors.
    column: name of the text column; None if each line is a text.
    others: other columns that records must have.
    first: number of the first line or row.
    content: whole lines.
    rows: a pyarrow.RecordBatch; None for lines.
    setting: the setting that names the column, for errors.
    fault: the fault of a record that could not be read, such as the rest of a damaged file; the block has nothing else.
    """

    name: str
    column: str | None
    others: list[str]
    first: int
    content: bytes = b""
    rows: Any = None
    setting: str = SETTING
    fault: str = ""

    def records(self) -> list[tuple[str, Any]]:
        """Return the place of each record and its line or the value of its column, except for empty lines of JSON."""
        if self.rows is not None:
            values = enumerate(column_values(self.rows, self.column or "", self.name), self.first)
            return [(f"{self.name}, row {number}", value) for number, value in values]
        lines = enumerate(io.BytesIO(self.content), self.first)
        return [(f"{self.name}, line {k}", line) for k, line in lines if self.column is None or line.strip()]

    def __len__(self) -> int:
        return 1 if self.fault else len(self.records()) if self.rows is None else int(self.rows.num_rows)

    def texts(self, *, passed: bool = False, taken: Sequence[str] = ()) -> tuple[TextBlock, dict[int, str]]:
        """Return the texts and, by position, the faults of records; the text of a faulty record is empty.

        passed: whether faults are skipped; null is a fault then, and records may lack the other columns. Otherwise,
        null is an empty text, and a fault raises RecordError, naming the line. taken: names that records may not have.
        """
        if self.fault:
            return TextBlock(b"\n", np.array([1])), {0: self.fault}
        if self.column is None:
            with Faults(SKIP if passed else STOP):
                check_text(self.content, self.name, self.first)
                return TextBlock(self.content, line_ends(self.content)), {}
        texts: list[str] = []
        faults: dict[int, str] = {}
        for where, record in self.records():
            try:
                texts.append(self._text(where, record, () if passed else self.others, taken, null=not passed))
            except RecordError as error:
                if not passed:
                    raise
                faults[len(texts)] = str(error)
                texts.append("")
        return block_of(texts, self.name), faults

    def _text(self, where: str, record: Any, others: Sequence[str], taken: Sequence[str], *, null: bool) -> str:
        value = record
        if self.column is None:
            check_text(record, where)
            return str(record.decode().removesuffix("\n"))
        if self.rows is None:
            value = json_value(record, where, self.column, self.setting, others, taken)
        else:
            require_new_names(self.rows.schema.names, taken, where)
        if value is None and not null:
            raise RecordError(f"{where}: {self.column!r} is null")
        return text_of(value, where, self.column, self.setting)

    def where(self, flags: npt.NDArray[np.bool_]) -> RecordBlock:
        """Return the records with a flag, `[M]`, unchanged."""
        if flags.all():
            return self
        if self.rows is not None:
            import pyarrow as pa

            return replace(self, rows=self.rows.filter(pa.array(flags)))
        lines = [line for (_, line), flag in zip(self.records(), flags.tolist(), strict=False) if flag]
        return replace(self, fault="", content=b"".join(lines))

    def fields(self, names: list[str] | None = None) -> Any:
        """Return fields of the records, all by default: a pyarrow.RecordBatch of rows, else dicts.

        A line is the field `text`. Fields that an object lacks are None; all fields are None if it is not an object.
        """
        if self.rows is not None:
            return self.rows if names is None else self.rows.select(names)
        if self.fault:
            return [dict.fromkeys(names or ())]
        if self.column is None:
            return [{"text": line.decode(errors="replace").rstrip("\r\n")} for _, line in self.records()]
        objects = [_object(line) for _, line in self.records()]
        return objects if names is None else [{name: found.get(name) for name in names} for found in objects]


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def record_blocks(
    names: Iterable[str],
    column: str | None,
    others: list[str] | None = None,
    *,
    setting: str = SETTING,
    passed: bool = False,
    by_line: bool = False,
) -> Iterator[RecordBlock]:
    """Yield the records of files, one file after the other, in blocks.

    names: `-` is standard input.
    column: name of the text column; None: a line is a text.
    others: other columns that records must have; None: no others, and rows of Parquet have all columns.
    setting: name of the setting, for errors.
    passed: whether faults are skipped, as in RecordBlock.texts; faults of the file become blocks.
    by_line: as in standard_input. Empty lines are empty texts, except in JSON Lines, where they are skipped.
    Raises UserError, naming file and line, if one cannot be read.
    """
    for name in names:
        path, _, member = name.partition(MEMBER)
        file = INPUT if name == STANDARD else name
        faults = Faults(SKIP if passed else STOP)
        with read_errors(file, faults):
            for handle in iter([standard_input(by_line=by_line)]) if name == STANDARD else open_files(path, member):
                called = name_of(handle, file)
                require_column(called, column, setting)
                if column is not None and format_of_name(called) == PARQUET:
                    yield from _row_blocks(handle, called, column, others, setting)
                    continue
                for block in whole_lines(handle, called, faults):
                    yield from _new_faults(faults)
                    if not block:
                        continue
                    text = without_marks(block, called, begins_file=block.first == 1) if column is None else block
                    yield RecordBlock(called, column, others or [], block.first, text, setting=setting)
        yield from _new_faults(faults)


def _new_faults(faults: Faults) -> Iterator[RecordBlock]:
    """Yield the faults so far as blocks, and clear them."""
    found, faults.first_messages = faults.first_messages, []
    yield from (RecordBlock("", None, [], 1, fault=fault) for fault in found)


def _row_blocks(
    handle: IO[bytes], name: str, column: str, others: list[str] | None, setting: str
) -> Iterator[RecordBlock]:
    """Yield blocks of rows, cut where their texts have about BLOCK_BYTES."""
    needed = list(dict.fromkeys([column, *(others or [])]))
    row = 1
    for batch in parquet_batches(handle, name, needed, f"{setting} names one of", whole=others is None):
        pieces = max(1, batch.column(column).nbytes // BLOCK_BYTES)
        count = max(1, -(-batch.num_rows // pieces))
        for at in range(0, max(1, batch.num_rows), count):
            yield RecordBlock(name, column, needed[1:], row + at, rows=batch.slice(at, count), setting=setting)
        row += batch.num_rows


def block_of(texts: Iterable[str], name: str = "the text") -> TextBlock:
    """Return texts as one block; a text may have several lines. name: name of the text, for notes."""
    lines = [without_marks(document_lines(text), name) for text in texts]
    return TextBlock(b"".join(lines), np.cumsum([len(text) for text in lines], dtype=np.int64))


def blocks_of(texts: Iterable[str]) -> Iterator[TextBlock]:
    """Yield texts in blocks of about BLOCK_BYTES bytes."""
    return map(block_of, batches_of(texts, BLOCK_BYTES))


def require_separate(text: str, names: Iterable[str], **outputs: str | None) -> None:
    """Raise UserError if an output (by setting) is an address or a file of text= (names), another output or a run."""
    used = {Path(name.partition(MEMBER)[0]).resolve(): f"text={text}" for name in names if not is_address(name)}
    for key, name in outputs.items():
        if name is None or (name == STANDARD and (key == "to" or (key, outputs.get("to")) == ("filter", None))):
            continue
        if name == STANDARD:
            raise UserError(f"{key}=-: only to=, or filter= without to=, can be standard output: name a file")
        if is_address(name):
            raise UserError(f"{key}={name} is an address: name a file on this machine")
        path = Path(name).resolve()
        if path in used:
            raise UserError(f"{key}={name} is also a file of {used[path]}: choose another")
        used[path] = f"{key}={name}"
        run: Any = None
        with suppress(OSError, ValueError):
            run = json.loads(path.with_name("run.json").read_text(encoding="utf-8"))
        if isinstance(run, dict) and path.name in {"run.json", "result.json", *run.get("checksums", ())}:
            raise UserError(f"{key}={name} is a file of the run in {path.parent}: choose another")


def require_writable(names: list[str], column: str | None, to: str) -> None:
    """Raise UserError if the records of files cannot be written unchanged to a file of this name."""
    kinds = {column is not None and format_of_name(name) == PARQUET for name in names}
    if len(kinds) > 1:
        raise UserError(f"filter={to}: Parquet and other files cannot be written to one file: score them separately")
    if kinds != {format_of_name(to) == PARQUET}:
        lines = "lines, which cannot be written to Parquet: name a text file"
        what = "rows of Parquet: name a file that ends in .parquet" if True in kinds else lines
        raise UserError(f"filter={to}: the texts are {what}")
