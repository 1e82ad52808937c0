"""Tables of scores, one row per text: tab-separated with a header line, or Parquet; exact quantiles of many numbers."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.data.readers import PACKED, PARQUET, form_of
from lmtool.data.text_lines import text_lines
from lmtool.data.text_records import packed_file
from lmtool.data.word_table import join_words
from lmtool.errors import UserError
from lmtool.evaluation.text_scores import TWO, Rows, criterion, differences, perplexities
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.files import cannot_write

NONE = -1  # the bucket of a text without tokens


class Column(NamedTuple):
    """A column: its values `[M]`, and the number of decimals in text; 0 for whole numbers."""

    name: str
    values: Callable[[Rows], npt.NDArray[Any]]
    decimals: int


def _perplexities_out(rows: Rows) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(rows["tokens"] > 0, np.exp(-rows["log_prob_out"] / rows["tokens"]), np.nan)


COLUMNS = (
    Column("tokens", lambda rows: rows["tokens"], 0),
    Column("oov", lambda rows: rows["oov"], 0),
    Column("log_prob", lambda rows: rows["log_prob"], 4),
    Column("perplexity", perplexities, 4),
)
OF_TWO = (
    *COLUMNS,
    Column("oov_out", lambda rows: rows["oov_out"], 0),
    Column("perplexity_out", _perplexities_out, 4),
    Column("difference", differences, 6),
)


@dataclass(slots=True)
class Buckets:
    """Buckets of texts by the criterion of selection.

    names: K, the lowest bucket first. limits: K - 1, ascending: a text is in the first bucket whose limit it does not
    exceed. most_oov: maximum share of OOVs of a text in a bucket. totals: the number of texts, tokens and OOVs of each
    bucket, int64 `[K, 3]`.
    """

    names: list[str]
    limits: list[float]
    most_oov: float | None = None
    totals: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.totals = np.zeros((len(self.names), 3), dtype=np.int64)

    def put(self, rows: Rows) -> IntArray:
        """Add texts to the totals; return the bucket of each, `[M]`, NONE without tokens or with too many OOVs."""
        values = criterion(rows, self.most_oov)
        places = np.where(np.isnan(values), NONE, np.searchsorted(np.array(self.limits), values, side="left"))
        figures = np.stack([np.ones_like(rows["oov"]), rows["tokens"], rows["oov"]], axis=1)
        np.add.at(self.totals, places[places >= 0], figures[places >= 0])
        return places


def require_table(name: str) -> None:
    """Raise UserError unless the suffix of a file's name is one of a table."""
    path = PurePosixPath(name)
    plain = path.with_suffix("") if path.suffix in PACKED else path
    if plain.suffix != ".tsv" and path.suffix != PARQUET:
        raise UserError(f"to={name}: the suffix decides what is written: .tsv, also .tsv.gz, .xz, .bz2, .zst; .parquet")


def write_table(parts: Iterable[Rows], dtype: np.dtype[Any], buckets: Buckets | None, to: Path, name: str) -> None:
    """Write the rows of texts, part by part. to: the file; name: its final name, whose suffix decides the format."""
    columns = OF_TWO if dtype == TWO else COLUMNS
    if form_of(name) == PARQUET:
        _write_parquet(parts, columns, buckets, to)
        return
    header = [column.name for column in columns] + (["bucket"] if buckets else [])
    decimals = [column.decimals for column in columns]
    joined = join_words([*buckets.names, ""] if buckets else [])  # the last is NONE
    with packed_file(to, name) as file:
        file.write(("\t".join(header) + "\n").encode())
        for rows in parts:
            values = np.stack([column.values(rows).astype(np.float64) for column in columns], axis=1)
            places = np.empty((len(rows), 0), dtype=np.int64)
            if buckets:
                places = buckets.put(rows)[:, None] % (len(buckets.names) + 1)
            file.write(text_lines(values, places, np.empty((len(rows), 0)), decimals, joined))


def _write_parquet(parts: Iterable[Rows], columns: tuple[Column, ...], buckets: Buckets | None, to: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [(column.name, pa.float64() if column.decimals else pa.int64()) for column in columns]
    schema = pa.schema([*fields, *([("bucket", pa.string())] if buckets else [])])
    with pq.ParquetWriter(to, schema) as writer:
        for rows in parts:
            arrays = [pa.array(column.values(rows), from_pandas=True) for column in columns]  # nan is null
            if buckets:
                names = [*buckets.names, None]  # NONE is the last
                arrays.append(pa.array([names[place] for place in buckets.put(rows).tolist()], pa.string()))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def quantiles(parts: Iterable[FloatArray], shares: list[float], folder: Path) -> list[float]:
    """Return for each share the smallest number that at least this share of all numbers does not exceed.

    parts: the numbers, of which nan are left out. folder: of the temporary file that holds them, so that memory does
    not grow with them. Empty if there are no numbers. Raises UserError if the disk is full.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
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
