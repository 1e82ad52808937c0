"""Documents in JSON Lines and Parquet: a named column holds the text, and each of a document's lines is a line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from lmtool.errors import UserError, first_line

PACKED = (".gz", ".xz", ".bz2", ".zst")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
AT_ONCE = 1 << 20  # bytes of text, about
LONGEST = 64 << 20  # bytes of a line of JSON
ROWS = 1 << 12


def form_of(name: str) -> str | None:
    """What a file holds by its name: PARQUET, or one of JSON_LINES; None for plain text."""
    path = PurePosixPath(name)
    if path.suffix in PACKED:
        path = path.with_suffix("")
    return path.suffix if path.suffix in (*JSON_LINES, PARQUET) else None


def document_blocks(
    handle: IO[bytes], name: str, column: str, setting: str = "data.column", at_once: int = AT_ONCE
) -> Iterator[bytes]:
    """The documents of a file in blocks of whole lines, UTF-8; setting: what the user calls the column. at_once: bytes
    of text per block, about; 0 makes each document a block.

    Raises UserError, naming the line or row, for what is no document with such a column.
    """
    documents = (
        parquet_texts(handle, name, column, setting)
        if form_of(name) == PARQUET
        else json_texts(_lines(handle, name), name, column, setting)
    )
    return blocks_of_documents(documents, at_once)


def _lines(handle: IO[bytes], name: str) -> Iterator[bytes]:
    """The lines of a file. Raises UserError for one that is too long for memory."""
    while line := handle.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise UserError(f"{name} has a line of over {LONGEST >> 20} MiB: is it one object per line?")
        yield line


def blocks_of_documents(documents: Iterator[str], at_once: int = AT_ONCE) -> Iterator[bytes]:
    """Documents in blocks of whole lines, UTF-8; each begins a line."""
    waiting: list[bytes] = []
    size = 0
    for document in documents:
        text = document_lines(document)
        waiting.append(text)
        size += len(text)
        if size > at_once:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def document_lines(document: str) -> bytes:
    """The lines of a document, UTF-8, each ending in a newline."""
    text = document.replace("\r\n", "\n").removesuffix("\n").encode("utf-8", "surrogatepass")
    return text + b"\n"


def json_texts(lines: Iterable[bytes], name: str, column: str, setting: str, first: int = 1) -> Iterator[str]:
    """The text of each of the lines, objects in JSON, of which the first one has the number `first`; empty lines hold
    none. Raises UserError, naming the line, for what is no document with such a column.
    """
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}, line {number}: no JSON ({error}): {setting} reads an object a line") from None
        if not isinstance(document, dict) or column not in document:
            known = ", ".join(sorted(document)) if isinstance(document, dict) else f"a {type(document).__name__}"
            raise UserError(f"{name}, line {number}: no {column!r} there: {setting} names one of: {known}")
        yield text_of(document[column], f"{name}, line {number}", column, setting)


def parquet_texts(handle: IO[bytes], name: str, column: str, setting: str) -> Iterator[str]:
    """The text of each row. Raises UserError as parquet_columns does, and for what is no text."""
    row = 0
    for (values,) in parquet_columns(handle, name, [column], f"{setting} names one of"):
        for value in values:
            row += 1
            yield text_of(value, f"{name}, row {row}", column, setting)


def parquet_columns(handle: IO[bytes], name: str, columns: list[str], remedy: str) -> Iterator[list[list[Any]]]:
    """The values of columns of a Parquet file, some rows at a time. remedy: what is said before the columns there are.

    A file that is read from its beginning alone, as a packed one, is held in memory. Raises UserError for a column that
    is not there, a file that is no Parquet file, and without pyarrow.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f'{name} is Parquet: pip install "lmtool[arrow]" to read it') from None
    try:
        file = pq.ParquetFile(handle if handle.seekable() else io.BytesIO(handle.read()))
        for column in columns:
            if column not in file.schema_arrow.names:
                names = ", ".join(file.schema_arrow.names)
                raise UserError(f"{name} has no column {column!r}: {remedy}: {names}")
        for batch in file.iter_batches(batch_size=ROWS, columns=columns):
            yield [batch.column(column).to_pylist() for column in columns]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        # OSError of what is damaged inside; ValueError and OverflowError of values that Python cannot hold.
        raise UserError(f"{name} is no Parquet file, or damaged ({first_line(error)}): write it again") from error


def text_of(value: Any, where: str, column: str, setting: str) -> str:
    """The text of a document, "" for none. Raises UserError, naming where it stands, for what is no text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is no text ({type(value).__name__}): name another by {setting}")
    return value
