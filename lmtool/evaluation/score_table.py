"""Tables of scores, one row per text: tab-separated with a header line, JSON Lines or Parquet; exact quantiles."""

from __future__ import annotations

import csv
import io
import json
import math
import operator
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.data.readers import JSON_LINES, PARQUET, TABLES, form_of, read_text
from lmtool.data.tables import cells_of, number
from lmtool.data.text_lines import text_lines
from lmtool.data.text_records import STANDARD
from lmtool.data.word_table import join_words
from lmtool.errors import UserError, first_line
from lmtool.evaluation.text_scores import BAG, TEXT, TWO, Rows, criterion, differences, log_weights, perplexities
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.files import atomic_write, cannot_write, packed_file
from lmtool.system.terminal import table_output

NONE = -1  # the bucket of a text without tokens


class Column(NamedTuple):
    """A column: its values `[M]`, and the number of decimals in text; 0 for whole numbers."""

    name: str
    values: Callable[[Rows], npt.NDArray[Any]]
    decimals: int


COLUMNS = (
    Column("tokens", lambda rows: rows["tokens"], 0),
    Column("oov", lambda rows: rows["oov"], 0),
    Column("log_prob_nats", lambda rows: rows["log_prob"], 4),
    Column("perplexity", perplexities, 4),
)
OF_TWO = (
    *COLUMNS,
    Column("oov_out", lambda rows: rows["oov_out"], 0),
    Column("perplexity_out", lambda rows: perplexities(rows, "log_prob_out"), 4),
    Column("difference", differences, 6),
)
OF_BAGS = (COLUMNS[0], Column("log_weight_nats", log_weights, 4))
OF = {TEXT: COLUMNS, TWO: OF_TWO, BAG: OF_BAGS}


def score_names(dtype: np.dtype[Any], *others: str, prefix: str = "") -> list[str]:
    """Return the names of the columns of scores. others: further ones, of those that are not empty."""
    return [prefix + name for name in (*(column.name for column in OF[dtype]), *filter(None, others))]


@dataclass(slots=True)
class Buckets:
    """Buckets of texts by the criterion of selection.

    names: K, the lowest bucket first. limits: K - 1, ascending: a text is in the first bucket whose limit it does not
    exceed. max_oov: maximum share of OOVs of a text in a bucket. totals: the number of texts, tokens and OOVs of each
    bucket, int64 `[K, 3]`.
    """

    names: list[str]
    limits: list[float]
    max_oov: float | None = None
    totals: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.totals = np.zeros((len(self.names), 3), dtype=np.int64)

    def put(self, rows: Rows) -> IntArray:
        """Add texts to the totals; return the bucket of each, `[M]`, NONE without tokens or with too many OOVs."""
        values = criterion(rows, self.max_oov)
        places = np.where(np.isnan(values), NONE, np.searchsorted(np.array(self.limits), values, side="left"))
        figures = np.stack([np.ones_like(rows["oov"]), rows["tokens"], rows["oov"]], axis=1)
        np.add.at(self.totals, places[places >= 0], figures[places >= 0])
        return places

    def named(self, rows: Rows) -> list[str | None]:
        """Add texts to the totals; return the name of the bucket of each, None for NONE."""
        names = [*self.names, None]  # NONE is the last
        return [names[place] for place in self.put(rows).tolist()]


def require_table(name: str, texts: tuple[str, ...] = TABLES, *, bom: bool = False) -> None:
    """Raise UserError unless a file's name is `-` or has the suffix of a table. texts: suffixes of plain text. bom:
    whether the table is to begin with a byte-order mark.
    """
    if name != STANDARD and not name.endswith(PARQUET) and form_of(name, (*texts, *JSON_LINES)) is None:
        rule = f"{', '.join(texts)} or .jsonl, also .tsv.gz, .xz, .bz2, .zst; .parquet; - is standard output"
        raise UserError(f"to={name}: the suffix decides what is written: {rule}")
    if bom and name != STANDARD and form_of(name, TABLES) is None:
        raise UserError(f"bom=true: to={name} has no byte-order mark: only .csv and .tsv may begin with one")


def require_distinct(names: Iterable[str], given: str, scores: Iterable[str]) -> None:
    """Raise UserError if columns of records occur twice or are named like those of scores. given: where, for it."""
    seen = set(scores)
    for name in names:
        if name in seen:
            remedy = "leave it out, or set prefix=lm_"
            raise UserError(f"{given}: {name!r} is a column of the scores, or occurs twice; {remedy}")
        seen.add(name)


def write_table(
    parts: Iterable[tuple[Rows, Any, list[str | None]]],
    dtype: np.dtype[Any],
    buckets: Buckets | None,
    to: Path | IO[bytes],
    name: str,
    names: Sequence[str] = (),
    *,
    bom: bool = False,
    prefix: str = "",
    errors: bool = False,
) -> None:
    """Write the rows of texts, part by part.

    parts: with the fields of their records, as RecordBlock.fields returns them, or None, and their faults. to: the
    file, or its path. name: its final name, whose suffix decides the format. names: of the columns from the records,
    which come first. bom: as in require_table. prefix: of the names of the other columns. errors: whether the last
    column has the faults.
    """
    parts = (part for part in parts if len(part[0]))  # a record that is left out may have no fields
    columns = [each._replace(name=prefix + each.name) for each in OF[dtype]]
    labels = [prefix + label for label in (*["bucket"] * (buckets is not None), *["error"] * errors)]

    def named(rows: Rows, faults: list[str | None]) -> dict[str, list[str | None]]:
        return dict(zip(labels, [*([buckets.named(rows)] if buckets else []), faults], strict=False))

    if form_of(name) == PARQUET:
        assert isinstance(to, Path), "standard output has no rows of Parquet"
        named_parts = ((rows, fields, named(rows, faults)) for rows, fields, faults in parts)
        _write_parquet(named_parts, columns, to, name, names, (np.empty(0, dtype), [], {key: [] for key in labels}))
        return
    decimals = [column.decimals for column in columns]
    joined = join_words([*buckets.names, ""] if buckets else [])  # the last is NONE
    with packed_file(to, name) if isinstance(to, Path) else nullcontext(to) as file:
        flush = file.flush if file is to else int  # standard output, whose reader may wait
        if form_of(name) not in JSON_LINES:
            header = [*names, *(column.name for column in columns), *labels]
            file.write(("\ufeff" * bom + "\t".join(map(_cell, header)) + "\n").encode())
        for rows, fields, faults in parts:
            records: Any = fields
            if fields is not None and not isinstance(fields, list):
                try:
                    records = fields.to_pylist()
                except (ValueError, OverflowError) as error:  # text that is not UTF-8, dates beyond Python's
                    raise UserError(
                        f"{name}: a column has no values as text ({error}): choose others by columns="
                    ) from error
            if form_of(name) in JSON_LINES:
                file.writelines(_json_lines(rows, records, columns, named(rows, faults)))
                flush()
                continue
            values = np.stack([column.values(rows).astype(np.float64) for column in columns], axis=1)
            places = np.empty((len(rows), 0), dtype=np.int64)
            if buckets:
                places = buckets.put(rows)[:, None] % (len(buckets.names) + 1)
            lines = text_lines(values, places, np.empty((len(rows), 0)), decimals, joined)
            if names:
                cells = ("".join(f"{_cell(record[name])}\t" for name in names) for record in records)
                begins = (text.encode("utf-8", "backslashreplace") for text in cells)
                lines = b"".join(map(operator.add, begins, lines.splitlines(keepends=True)))
            if errors:
                ends = (f"\t{_cell(fault)}\n".encode("utf-8", "backslashreplace") for fault in faults)
                lines = b"".join(map(operator.add, lines.splitlines(), ends))
            file.write(lines)
            flush()


def _cell(value: Any) -> str:
    """Return a value as a cell: nothing for None, JSON for lists, objects and booleans; tabs and line ends escaped."""
    structured = isinstance(value, dict | list | bool)
    text = json.dumps(value, ensure_ascii=False, default=_text) if structured else "" if value is None else _text(value)
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with None for numbers that are not finite."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}


def _text(value: Any) -> str:
    """Return a value that JSON lacks, such as a date, as text. Raises UserError for bytes that are not UTF-8."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise UserError(f"a binary column has no values as text ({error}): leave it out") from None


def json_line(record: dict[str, Any]) -> bytes:
    """Return a record as a line of JSON, with null for numbers that are not finite, which JSON lacks."""
    text = json.dumps(_finite(record), ensure_ascii=False, default=_text)
    return f"{text}\n".encode("utf-8", "backslashreplace")  # a lone surrogate becomes its escape in JSON


def _json_lines(
    rows: Rows, records: list[dict[str, Any]], columns: list[Column], named: dict[str, list[str | None]]
) -> Iterator[bytes]:
    """Yield records with their scores as lines of JSON; numbers that are not finite, which JSON lacks, are null."""
    scores = {column.name: column.values(rows).tolist() for column in columns} | named
    for record, *values in zip(records, *scores.values(), strict=True):
        yield json_line({**record, **dict(zip(scores, values, strict=True))})


def _write_parquet(
    parts: Iterable[tuple[Rows, Any, dict[str, list[str | None]]]],
    columns: list[Column],
    to: Path,
    name: str,
    names: Sequence[str],
    empty: tuple[Rows, Any, dict[str, list[str | None]]],
) -> None:
    """Write parts. empty: a part without rows, for the columns of a file without any."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None

    def table(rows: Rows, fields: Any, named: dict[str, list[str | None]]) -> Any:
        arrays = {}
        if isinstance(fields, pa.RecordBatch):
            arrays = dict(zip(fields.schema.names, fields.columns, strict=True))
        for key in names if isinstance(fields, list) else ():  # of JSON lines, with the types of the first part
            values = [record[key] for record in fields]
            kind = writer.schema.field(key).type if writer else pa.array(values).type
            if "struct" in str(kind) or kind in (pa.null(), pa.string()):  # JSON: later objects may have other keys
                kind, values = pa.string(), [_cell(v) if isinstance(v, dict | list) else v for v in values]
            arrays[key] = pa.array(values, kind)
        require_distinct(arrays, f"{name} has whole records", [column.name for column in columns])
        for column in columns:
            kind = pa.float64() if column.decimals else pa.int64()
            arrays[column.name] = pa.array(column.values(rows), kind, from_pandas=True)  # nan is null
        return pa.table(arrays | {key: pa.array(values, pa.string()) for key, values in named.items()})

    with ExitStack() as files:
        for part in parts:
            try:
                found = table(*part)
                writer = writer or files.enter_context(pq.ParquetWriter(to, found.schema))
                writer.write_table(found)
            except (ValueError, TypeError, OverflowError) as error:  # pyarrow's
                raise UserError(f"{name}: a column changes its type: write .jsonl ({first_line(error)})") from error
        if writer is None:
            pq.write_table(table(*empty), to)


def write_columns(columns: dict[str, list[Any]], name: str, *, bom: bool = False, header: bool = True) -> None:
    """Write columns of equal length as a table: .tsv, .csv, JSON Lines or Parquet, with nothing for None and nan.

    name: of the file, whose suffix decides the format, and which is written completely or not at all; `-` is standard
    output, tab-separated. bom: as in require_table. header: whether tab-separated cells have a first line of names.
    """
    plain = {key: [None if value != value else value for value in values] for key, values in columns.items()}
    with ExitStack() as files:
        if form_of(name) == PARQUET:
            try:
                import pyarrow as pa
                import pyarrow.parquet as pq

                pq.write_table(pa.table(plain), files.enter_context(atomic_write(Path(name))))
            except ImportError:
                raise UserError(f'{name} is Parquet: pip install "lmtool[arrow]" to write it') from None
            except (ValueError, TypeError, OverflowError) as error:  # pyarrow's
                raise UserError(f"{name}: a column has several types: write .jsonl ({first_line(error)})") from error
            return
        rows = zip(*plain.values(), strict=True)
        packed = table_output()
        if name != STANDARD:
            packed = files.enter_context(packed_file(files.enter_context(atomic_write(Path(name))), name))
        file = io.TextIOWrapper(packed, "utf-8-sig" if bom else "utf-8", "backslashreplace", newline="")
        if form_of(name) in JSON_LINES:
            file.writelines(json_line(dict(zip(plain, row, strict=True))).decode() for row in rows)
        elif ".csv" in PurePosixPath(name).suffixes:
            lines = ([_cell(v) if isinstance(v, dict | list | bytes) else v for v in row] for row in rows)
            csv.writer(file, lineterminator="\n").writerows([list(plain), *lines])
        else:
            file.writelines(
                "\t".join(_cell(value) for value in row) + "\n" for row in [*[tuple(plain)] * header, *rows]
            )
        file.flush()
        file.detach()


def quantiles(parts: Iterable[FloatArray], shares: list[float], folder: Path) -> list[float]:
    """Return for each share the smallest number that at least this share of all numbers does not exceed.

    parts: the numbers, of which nan are left out. folder: of the temporary file that holds them, so that memory does
    not grow with them. Empty if there are no numbers. Raises UserError if the disk is full.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            for part in parts:
                file.write(part[~np.isnan(part)].astype(np.float64).tobytes())
            file.flush()
        except OSError as error:
            raise cannot_write(folder, error) from error
        count = file.tell() // 8
        if not count:
            return []
        values = np.memmap(file, dtype=np.float64)
        ranks = [max(math.ceil(share * count * (1 - 1e-12)), 1) - 1 for share in shares]
        values.partition(ranks)
        return [float(values[rank]) for rank in ranks]


def percentiles(path: str, column: str, shares: list[float]) -> list[float]:
    """Return quantiles from a CSV file of percentiles, as CCNet's cutoff.csv: its first column has percentages,
    ascending, and each of the others, under a name, the numbers that these percentages of all texts do not exceed.

    A share between two percentages has a number between theirs, in proportion. Raises UserError for a column that is
    not in the file, for a share outside the percentages, and for another kind of file.
    """
    header, rows, mark = cells_of(read_text(path), path)
    if column not in header[1:]:
        raise UserError(f"bucket_language={column}: {path} has the columns {', '.join(header[1:]) or '(none)'}")
    place = header.index(column, 1)
    known = np.array([[number(row[0], mark), number(row[place], mark)] for row in rows]).reshape(-1, 2)
    if not len(known) or not np.isfinite(known).all() or (np.diff(known, axis=0) < [1e-9, 0]).any():
        raise UserError(f"{path}: must have percentages in its first column and numbers in {column}, both ascending")
    wanted = [round(100 * share, 9) for share in shares]  # 0.29 is 28.999999999999996 %
    if not known[0, 0] <= wanted[0] <= wanted[-1] <= known[-1, 0]:
        low, high = known[[0, -1], 0] / 100
        raise UserError(f"bucket_quantiles={shares}: {path} has those from {low:g} to {high:g}")
    return list(map(float, np.interp(wanted, *known.T)))
