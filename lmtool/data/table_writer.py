"""Write tables, part by part: tab-separated, CSV, JSON Lines or Parquet, by the suffix; `-` is standard output."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.data.readers import JSON_LINES, PARQUET, TABLES, format_of_name
from lmtool.data.text_records import STANDARD
from lmtool.data.word_table import join_words, text_lines
from lmtool.errors import UserError, first_line
from lmtool.system.files import atomic_write, cannot_write, packed_file
from lmtool.system.terminal import table_output

Columns = Mapping[str, Any]  # columns by name: a list of values or an array of numbers; arrays come first
Part = tuple[Any, Columns]  # fields of M records, as RecordBlock.fields returns them, or None; and columns [M]
DECIMALS = 4  # number of decimals of float64 arrays in text
CHANGED = "a column changes its type: write .jsonl"


def table_format(name: str, standard_format: str = ".tsv") -> str | None:
    """Return the format of a table by its file's name: .tsv, .csv, .jsonl or .parquet; None for other names.

    standard_format: the format of standard output.
    """
    format_name = standard_format if name == STANDARD else format_of_name(name, (*TABLES, *JSON_LINES, PARQUET))
    if format_name == PARQUET and not name.endswith(PARQUET):  # a Parquet file is not packed
        return None
    return ".jsonl" if format_name in JSON_LINES else format_name


def require_table(name: str, standard_format: str = ".tsv", *, bom: bool = False) -> None:
    """Raise UserError unless table_format finds a format. bom: whether the table begins with a byte-order mark."""
    format_name = table_format(name, standard_format)
    if format_name is None:
        rule = ".tsv, .csv or .jsonl, also .tsv.gz, .xz, .bz2, .zst; .parquet; - is standard output"
        raise UserError(f"to={name}: the suffix decides what is written: {rule}")
    if bom and format_name not in TABLES:
        raise UserError(f"bom=true: to={name} has no byte-order mark: only .csv and .tsv may begin with one")


def write_table(
    columns: Columns,
    name: str,
    parts: Iterable[Part] = (),
    *,
    names: Sequence[str] = (),
    standard_format: str = ".tsv",
    decimals: Mapping[str, int] | None = None,
    bom: bool = False,
) -> None:
    """Write a table completely or not at all, with nothing for None and nan.

    columns: the first rows; they may be empty.
    parts: more rows with the same columns.
    names: names of the fields that precede the columns; JSON Lines and Parquet have all fields of a part.
    standard_format: as in table_format.
    decimals: number of decimals of arrays in text, if not DECIMALS; integers have none.
    bom: as in require_table.
    """
    format_name = table_format(name, standard_format)
    every = chain([(None, columns)], parts)
    rows = ((fields, part) for fields, part in every if len(next(iter(part.values()))))  # a record may have no fields
    if format_name == PARQUET:
        write_pieces(_arrow_tables(rows, columns, name, names), name, CHANGED)
    elif format_name == ".jsonl":
        write_pieces((_json_lines(_records(part, name), part[1]) for part in rows), name)
    else:
        header = _join_cells([[key] for key in (*names, *columns)], format_name).encode("utf-8-sig" if bom else "utf-8")
        lines = (_text_lines(_records(part, name), part[1], names, decimals or {}, format_name) for part in rows)
        write_pieces(chain([header], lines), name)


def write_pieces(pieces: Iterable[Any], name: str, fault: str = "") -> None:
    """Write bytes, packed as a file's name says, or rows of Parquet, as batches or tables of pyarrow.

    name: a file, which is written completely or not at all, or `-` for standard output, which gets each piece
    immediately. fault: the message if rows differ from the first ones in their columns.
    """
    with ExitStack() as files:
        temporary = None if name == STANDARD else files.enter_context(atomic_write(Path(name)))
        out: Any = table_output() if temporary is None else None
        for piece in chain(pieces, [b""]):
            try:
                if isinstance(piece, bytes) and temporary is not None:
                    out = out or files.enter_context(packed_file(temporary, name))
                elif not isinstance(piece, bytes):
                    import pyarrow.parquet as pq

                    out = out or files.enter_context(pq.ParquetWriter(temporary, piece.schema))
                if piece != b"":
                    out.write(piece)
                if temporary is None:
                    out.flush()
            except BrokenPipeError:  # the reader of standard output has stopped
                raise
            except OSError as error:
                raise cannot_write(Path(name), error) from error
            except ValueError as error:  # pyarrow's
                raise UserError(f"{name}: {fault} ({first_line(error)})") from error


def _records(part: Part, name: str) -> list[dict[str, Any]]:
    """Return the fields of the records of a part, {} if it has none."""
    fields, columns = part
    if fields is None:
        return [{}] * len(next(iter(columns.values())))
    try:
        return fields if isinstance(fields, list) else fields.to_pylist()
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, dates beyond Python's
        raise UserError(f"{name}: a column has no values as text ({error}): choose others by columns=") from error


def _json_lines(records: list[dict[str, Any]], columns: Columns) -> bytes:
    """Return records with their columns as lines, with null for numbers that are not finite, which JSON lacks."""
    values = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    lines = []
    for record, *row in zip(records, *values, strict=True):
        whole = {**record, **dict(zip(columns, row, strict=True))}
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in whole.items()}
        lines.append(f"{json.dumps(finite, ensure_ascii=False, default=_text)}\n")
    return "".join(lines).encode("utf-8", "backslashreplace")  # a lone surrogate becomes its escape in JSON


def _text_lines(
    records: list[dict[str, Any]],
    columns: Columns,
    names: Sequence[str],
    decimals: Mapping[str, int],
    format_name: str | None,
) -> bytes:
    """Return rows as lines of cells, separated by tabs or, for .csv, by commas."""
    numbers = {key: values for key, values in columns.items() if isinstance(values, np.ndarray)}
    cells: list[Any] = [[_cell(record.get(name), format_name) for record in records] for name in names]
    if numbers:
        shown = [0 if values.dtype.kind == "i" else decimals.get(key, DECIMALS) for key, values in numbers.items()]
        none = np.empty((len(records), 0))
        stacked = np.stack([values.astype(np.float64) for values in numbers.values()], axis=1)
        lines = text_lines(stacked, none.astype(np.int64), none, shown, join_words([]))
        if format_name != ".csv" and not names and len(numbers) == len(columns):
            return lines
        each = lines.decode().splitlines()
        cells += zip(*(line.split("\t") for line in each), strict=True) if format_name == ".csv" else [each]
    cells += [[_cell(value, format_name) for value in values] for key, values in columns.items() if key not in numbers]
    return _join_cells(cells, format_name).encode("utf-8", "backslashreplace")


def _join_cells(cells: Sequence[Iterable[str]], format_name: str | None) -> str:
    """Return columns of cells as lines."""
    rows = zip(*cells, strict=True)
    if format_name != ".csv":
        return "".join("\t".join(row) + "\n" for row in rows)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cell(value: Any, format_name: str | None) -> str:
    """Return a value as a cell: nothing for None and nan, JSON for lists, objects and booleans; tabs and line ends are
    escaped unless quotes enclose them.
    """
    if value is None or value != value:
        return ""
    structured = isinstance(value, dict | list | bool)
    text = json.dumps(value, ensure_ascii=False, default=_text) if structured else _text(value)
    return text if format_name == ".csv" else text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _text(value: Any) -> str:
    """Return a value that JSON lacks, such as a date, as text."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise UserError(f"a binary column has no values as text ({error}): leave it out") from None


def _arrow_tables(rows: Iterator[Part], columns: Columns, name: str, names: Sequence[str]) -> Iterator[Any]:
    """Yield parts as pyarrow tables; if there are no rows, one table with the columns. JSON and text are strings."""
    try:
        import pyarrow as pa
    except ImportError:
        raise UserError(f'{name} is Parquet: pip install "lmtool[arrow]" to write it') from None
    kinds: dict[str, Any] = {}  # the types of the first part, which other parts must share

    def array(key: str, values: Any) -> Any:
        if isinstance(values, pa.Array):
            return values
        kind = kinds.get(key) or pa.array(values, from_pandas=True).type
        if "struct" in str(kind) or kind in (pa.null(), pa.string()):  # later objects may have other keys
            kind, values = pa.string(), [_cell(v, ".csv") if isinstance(v, dict | list) else v for v in values]
        kinds[key] = kind
        return pa.array(values, kind, from_pandas=True)  # nan becomes null

    for fields, part in chain(rows, [([], columns)]):
        if part is columns and kinds:
            return
        found: dict[str, Any] = {}
        if isinstance(fields, list):
            found = {key: [record.get(key) for record in fields] for key in names}
        elif fields is not None:
            found = dict(zip(fields.schema.names, fields.columns, strict=True))
        try:
            yield pa.table({key: array(key, values) for key, values in (found | dict(part)).items()})
        except (ValueError, TypeError, OverflowError) as error:  # pyarrow's
            raise UserError(f"{name}: {CHANGED} ({first_line(error)})") from error
