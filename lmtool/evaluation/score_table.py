"""Tables of scores, one row per text: tab-separated with a header line, or Parquet; exact quantiles of many numbers."""

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
MAX_CELL_WIDTH = 26  # bytes of a number and the separator after it
MAX_EXACT = 9e15  # whole numbers up to here are exact in float64


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
    decimals = np.array([column.decimals for column in columns])
    starts, letters = join_words(buckets.names if buckets else [])
    with packed_file(to, name) as file:
        file.write(("\t".join(header) + "\n").encode())
        for rows in parts:
            values = np.stack([column.values(rows).astype(np.float64) for column in columns], axis=1)
            places = buckets.put(rows) if buckets else np.empty(0, dtype=np.int64)
            out = np.empty(len(rows) * (len(columns) * MAX_CELL_WIDTH + len(letters) + 1), dtype=np.uint8)
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
    """Write values `[M, C]` and the names of buckets as lines into `out`; return the number of bytes.

    Compiled, as scores of short texts are computed faster than Python formats them; in plain form it is
    `"\\t".join(f"{value:.{d}f}" ...)`, which test_a_table_by_hand (tests/evaluation) compares it to.
    """
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
    """Write a number with this many decimals, a large one as 1.2345e+20, nan as nothing; return the next position."""
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
    if value * 10.0**decimals >= MAX_EXACT:
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
    """Write a whole number of 0 or more with at least this many digits; return the position after it."""
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
DIGIT_BITS = 16  # bits decided in one pass
SIGN = np.uint64(1 << 63)


def quantiles(parts: Callable[[], Iterator[FloatArray]], shares: list[float]) -> list[float]:
    """Return for each share the smallest number that at least this share of all numbers does not exceed.

    parts: iterates over the numbers, part by part, each time it is called; nan are left out. Takes four passes over
    them for each share. Empty if there are no numbers.
    """
    count = sum(int((~np.isnan(part)).sum()) for part in parts())
    if not count:
        return []
    return [_ranked(parts, max(math.ceil(share * count * (1 - 1e-12)), 1)) for share in shares]


def _ranked(parts: Callable[[], Iterator[FloatArray]], rank: int) -> float:
    """Return the number with a rank, from 1: digit by digit, the highest first, by counting each digit."""
    prefix = 0
    for shift in range(64 - DIGIT_BITS, -1, -DIGIT_BITS):
        counts = np.zeros(1 << DIGIT_BITS, dtype=np.int64)
        for part in parts():
            keys = _ordered(part[~np.isnan(part)])
            if shift < 64 - DIGIT_BITS:
                keys = keys[keys >> np.uint64(shift + DIGIT_BITS) == prefix]
            digits = (keys >> np.uint64(shift)) & np.uint64((1 << DIGIT_BITS) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << DIGIT_BITS)
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, rank))
        rank -= int(below[digit] - counts[digit])
        prefix = prefix << DIGIT_BITS | digit
    key = np.array([prefix], dtype=np.uint64)
    return float(np.where(key & SIGN, key ^ SIGN, ~key).view(np.float64)[0])


def _ordered(values: FloatArray) -> Keys:
    """Return whole numbers in the order of the values: the bits of positive ones, inverted bits of negative ones."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)
