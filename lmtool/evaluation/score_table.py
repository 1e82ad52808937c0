"""Scores of texts as a table in a file, a row for each text: tab-separated with a head line, or Parquet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.readers import PACKED, PARQUET, form_of
from lmtool.data.text_records import packed_file
from lmtool.data.word_table import join_words
from lmtool.errors import UserError
from lmtool.evaluation.text_scores import TWO, Rows, criterion, differences, perplexities
from lmtool.system.arrays import FloatArray, IntArray

NONE = -1  # the bucket of a text without tokens
WIDTH = 26  # letters of a number and what follows it, at most
EXACT = 9e15  # whole numbers up to here are exact in float64


class Column(NamedTuple):
    """A column: its values `[M]`, and the digits behind the point that text has; 0 for whole numbers."""

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
    """Texts by what they are selected by. names: K, the lowest first. limits: K - 1, ascending: a text is in the first
    bucket whose limit it does not exceed. most_oov: the largest share of OOVs of a text in a bucket. totals: of each
    the number of its texts, tokens and OOVs, int64 `[K, 3]`.
    """

    names: list[str]
    limits: list[float]
    most_oov: float | None = None
    totals: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.totals = np.zeros((len(self.names), 3), dtype=np.int64)

    def put(self, rows: Rows) -> IntArray:
        """The bucket of each text, `[M]`, NONE for one without tokens or with too many OOVs."""
        values = criterion(rows, self.most_oov)
        places = np.where(np.isnan(values), NONE, np.searchsorted(np.array(self.limits), values, side="left"))
        figures = np.stack([np.ones_like(rows["oov"]), rows["tokens"], rows["oov"]], axis=1)
        np.add.at(self.totals, places[places >= 0], figures[places >= 0])
        return places


def require_table(name: str) -> None:
    """Raise UserError unless the suffix of a file's name is that of a table."""
    path = PurePosixPath(name)
    plain = path.with_suffix("") if path.suffix in PACKED else path
    if plain.suffix != ".tsv" and path.suffix != PARQUET:
        raise UserError(f"to={name}: the suffix decides what is written: .tsv, also .tsv.gz, .xz, .bz2, .zst; .parquet")


def write_table(parts: Iterable[Rows], dtype: np.dtype[Any], buckets: Buckets | None, to: Path, name: str) -> None:
    """Write the rows of texts, some at a time. to: the file; name: the one that it is to have, whose suffix counts."""
    columns = OF_TWO if dtype == TWO else COLUMNS
    if form_of(name) == PARQUET:
        _write_parquet(parts, columns, buckets, to)
        return
    header = [column.name for column in columns] + (["bucket"] if buckets else [])
    decimals = np.array([column.decimals for column in columns])
    starts, letters = join_words(buckets.names if buckets else [])
    with packed_file(to, name) as file:
        file.write(("\t".join(header) + "\n").encode())
        for rows in parts:
            values = np.stack([column.values(rows).astype(np.float64) for column in columns], axis=1)
            places = buckets.put(rows) if buckets else np.empty(0, dtype=np.int64)
            out = np.empty(len(rows) * (len(columns) * WIDTH + len(letters) + 1), dtype=np.uint8)
            size = _format_rows(values, decimals, places, starts, letters, out)
            file.write(out[:size].tobytes())


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


@numba.njit(cache=True, nogil=True)
def _format_rows(values: Any, decimals: Any, places: Any, starts: Any, letters: Any, out: Any) -> Any:
    """Write values `[M, C]` and the names of buckets as lines into `out`; returns the number of bytes."""
    at = 0
    for i in range(len(values)):
        for j in range(values.shape[1]):
            at = _format_number(values[i, j], decimals[j], out, at)
            out[at] = 9
            at += 1
        if len(places) == 0:
            at -= 1
        elif places[i] >= 0:
            for k in range(starts[places[i]], starts[places[i] + 1]):
                out[at] = letters[k]
                at += 1
        out[at] = 10
        at += 1
    return at


@numba.njit(cache=True, nogil=True)
def _format_number(value: float, decimals: int, out: Any, at: int) -> Any:
    """Write a number with so many decimals, a large one as 1.2345e+20, nothing for nan; returns the byte after it."""
    if np.isnan(value):
        return at
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    if np.isinf(value):
        out[at], out[at + 1], out[at + 2] = 105, 110, 102
        return at + 3
    exponent = 0
    if value * 10.0**decimals >= EXACT:
        while np.floor(value * 10.0**decimals + 0.5) >= 10.0 ** (decimals + 1):  # 9.99999 is 10 once it is rounded
            value /= 10
            exponent += 1
    scaled: Any = np.int64(np.floor(value * 10.0**decimals + 0.5))
    ten: Any = np.int64(10) ** decimals
    at = _format_whole(scaled // ten, 1, out, at)
    if decimals > 0:
        out[at] = 46
        at = _format_whole(scaled % ten, decimals, out, at + 1)
    if exponent:
        out[at], out[at + 1] = 101, 43
        at = _format_whole(exponent, 2, out, at + 2)
    return at


@numba.njit(cache=True, nogil=True)
def _format_whole(value: int, digits: int, out: Any, at: int) -> Any:
    """Write a whole number of 0 or more with so many digits at least; returns the byte after it."""
    size = digits
    rest = value // np.int64(10) ** digits
    while rest > 0:
        rest //= 10
        size += 1
    for k in range(size - 1, -1, -1):
        out[at + k] = 48 + value % 10
        value //= 10
    return at + size


Keys = npt.NDArray[np.uint64]
DIGIT = 16  # bits that are decided in one pass
SIGN = np.uint64(1 << 63)


def quantiles(parts: Callable[[], Iterator[FloatArray]], shares: list[float]) -> list[float]:
    """For each share the smallest of the numbers that at least this share of them are no larger than.

    parts: the numbers, some at a time, each time it is called; nan among them are left out. There are four passes over
    them for each share. Empty without numbers.
    """
    count = sum(int((~np.isnan(part)).sum()) for part in parts())
    if not count:
        return []
    return [_ranked(parts, max(math.ceil(share * count * (1 - 1e-12)), 1)) for share in shares]


def _ranked(parts: Callable[[], Iterator[FloatArray]], rank: int) -> float:
    """The number of a rank, from 1: digit by digit, the highest first, by the counts of each."""
    prefix = 0
    for shift in range(64 - DIGIT, -1, -DIGIT):
        counts = np.zeros(1 << DIGIT, dtype=np.int64)
        for part in parts():
            keys = _ordered(part[~np.isnan(part)])
            if shift < 64 - DIGIT:
                keys = keys[keys >> np.uint64(shift + DIGIT) == prefix]
            digits = (keys >> np.uint64(shift)) & np.uint64((1 << DIGIT) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << DIGIT)
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, rank))
        rank -= int(below[digit] - counts[digit])
        prefix = prefix << DIGIT | digit
    key = np.array([prefix], dtype=np.uint64)
    return float(np.where(key & SIGN, key ^ SIGN, ~key).view(np.float64)[0])


def _ordered(values: FloatArray) -> Keys:
    """Whole numbers in the order of the values: the bits of the positive ones, those of the negative ones inverted."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)
