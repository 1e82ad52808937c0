"""Read documents: the text of each object of JSON Lines, or of each row of Parquet, by a named column."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any

from lmtool.data.faults import Faults, FileLines, check_text
from lmtool.errors import RecordError, UserError, first_line

ROWS = 1 << 12  # rows of Parquet read at once
Texts = Iterator[tuple[str, str]]  # the place and text of each document


def json_texts(blocks: Iterable[FileLines], name: str, column: str, setting: str, faults: Faults) -> Texts:
    """Yield the place and text of each line, a JSON object. Empty lines are skipped; other lines are faults."""
    numbered = (enumerate(io.BytesIO(block), block.first) for block in blocks)
    for number, line in chain.from_iterable(numbered):
        if line.strip():
            where = f"{name}, line {number}"
            with faults:
                yield _document(json_value(line, where, column, setting), where, column, setting)


def json_document(line: bytes, where: str, setting: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not JSON ({error}): {setting} reads one object per line") from None


def json_value(
    line: bytes, where: str, column: str, setting: str, others: Iterable[str] = (), taken: Iterable[str] = ()
) -> Any:
    """Return the value of a column of a JSON object. others, taken: columns that it must, must not have."""
    document = json_document(line, where, setting)
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise RecordError(f"{where}: not a JSON object but a {kind}: {setting} names a key of objects")
    for key, name in ((setting, column), *((f"{setting}s", other) for other in others)):
        if name not in document:
            raise RecordError(f"{where}: it has no {name!r}: {key} names one of: {', '.join(sorted(document))}")
    require_new_names(document, taken, where)
    return document[column]


def require_new_names(names: Iterable[str], taken: Iterable[str], where: str) -> None:
    """Raise RecordError, naming the place, if a column of a record is named like one of the scores, `taken`."""
    if found := next((name for name in taken if name in names), None):
        raise RecordError(f"{where}: {found!r} is a column of the scores, too: rename it, or set prefix=lm_")


def parquet_texts(handle: IO[bytes], name: str, column: str, setting: str, faults: Faults) -> Texts:
    """Yield the place and text of each row; values that are not text are faults."""
    batches = parquet_batches(handle, name, [column], f"{setting} names one of")
    values = (column_values(batch, column, name) for batch in batches)
    return texts_of_rows(chain.from_iterable(values), name, column, setting, faults)


def texts_of_rows(values: Iterable[Any], name: str, column: str, setting: str, faults: Faults) -> Texts:
    """Yield the place and text of each row; a value that is not text is a fault, which names the row."""
    for row, value in enumerate(values, start=1):
        with faults:
            yield _document(value, f"{name}, row {row}", column, setting)


def parquet_batches(
    handle: IO[bytes], name: str, columns: list[str], remedy: str, *, whole: bool = False
) -> Iterator[Any]:
    """Yield columns of a Parquet file as pyarrow.RecordBatch of at most ROWS rows; one empty batch if it has no rows.

    whole: whether to read all columns. remedy: text before the names of the columns in the error for a missing column.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f'{name} is Parquet: pip install "lmtool[arrow]" to read it') from None
    with _parquet_errors(name):
        file = pq.ParquetFile(handle if handle.seekable() else io.BytesIO(handle.read()))
        for column in columns:
            if column not in file.schema_arrow.names:
                names = ", ".join(file.schema_arrow.names)
                raise UserError(f"{name} has no column {column!r}: {remedy}: {names}")
        yield from file.iter_batches(batch_size=ROWS, columns=None if whole else columns)
        if not file.metadata.num_rows:
            yield pa.RecordBatch.from_pylist([], schema=file.schema_arrow)


def column_values(batch: Any, column: str, name: str) -> list[Any]:
    """Return the values of a column of a pyarrow.RecordBatch; text that is not UTF-8 is returned as bytes."""
    with _parquet_errors(name):
        values = batch.column(column)
        try:
            return list(map(decode_bytes, values.to_pylist()))
        except UnicodeDecodeError:
            return list(map(decode_bytes, values.cast("binary").to_pylist()))


def decode_bytes(value: Any) -> Any:
    """Decode bytes in UTF-8, because some programs write text to Parquet as bytes; return other values unchanged."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


@contextmanager
def _parquet_errors(name: str) -> Iterator[None]:
    """Raise RecordError, naming the file, for the errors of pyarrow in the block."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        # OSError: damage inside; ValueError, OverflowError: values that Python cannot hold.
        raise RecordError(f"{name} is damaged or not a Parquet file ({first_line(error)}): copy it again") from error


def text_of(value: Any, where: str, column: str, setting: str) -> str:
    """Return the text of a document, "" for None."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RecordError(f"{where}: {column!r} is not text ({type(value).__name__}): name another column by {setting}")
    return value


def _document(value: Any, where: str, column: str, setting: str) -> tuple[str, str]:
    """Return the place and text of a document, without NUL and lone surrogates."""
    text = text_of(value, where, column, setting)
    check_text(text.encode("utf-8", "surrogatepass"), where)
    return where, text
