"""Tasks of Spark's workers: functions from Arrow batches to Arrow batches.

The workers need lmtool, without torch, and the Python version of the driver.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.config.data import DataConfig
from lmtool.data.first_pass import tokenizer_of
from lmtool.data.readers import check_text
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, count_ngrams
from lmtool.ngram.spark._levels import Level, levels
from lmtool.system import parallel
from lmtool.system.arrays import IntArray

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]
Array = npt.NDArray[Any]

# Columns of a line of text: the line, the number of its file in the settings, its file, its piece of the file.
LINES = ["value", "part", "path", "start"]
TYPES = "what string, word string, count long, part int, path string, start long, place long"
WORD, EMPTY_LINES, PROBLEM = "word", "empty lines", "problem"  # column `what` of TYPES
TOKENS_PER_PIECE = 2_000_000  # counted in memory, at some 64 bytes each
ROWS_PER_BATCH = 1 << 18
NO_TEXT = b"\0"  # the line of a document without text


def count_types(data: DataConfig) -> Task:
    """Return a task that counts the types of lines: rows of TYPES, with their first positions in pieces of files.

    Text that cannot be counted gives a row with the reason.
    """

    def task(batches: Batches) -> Batches:
        parallel.use(1)
        for (part, path, start), blocks in _pieces(batches):
            tokenizer = tokenizer_of(data)
            counts, places, tokens = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
            name = f"{path}, in the piece that begins at byte {start}"
            try:
                for block in blocks:
                    if block.startswith(NO_TEXT + b"\n") or b"\n" + NO_TEXT + b"\n" in block:
                        raise UserError(f"{name}: a document without data.column, or none at all")
                    check_text(block, name, 1)
                    ids = tokenizer(block, name)
                    grown = np.bincount(ids, minlength=len(counts))
                    grown[: len(counts)] += counts
                    first = np.full(len(grown), -1, dtype=np.int64)
                    first[: len(places)] = places
                    known = first[ids] >= 0
                    new, where = np.unique(ids[~known], return_index=True)
                    first[new] = np.flatnonzero(~known)[where] + tokens
                    counts, places, tokens = grown, first, tokens + len(ids)
            except UserError as error:
                yield _types_batch([PROBLEM], [str(error)], [0], [0], part, path, start)
                continue
            seen = np.flatnonzero(counts)
            types = tokenizer.types()
            for at in range(0, len(seen), ROWS_PER_BATCH):
                some = seen[at : at + ROWS_PER_BATCH]
                words = [types[k] for k in some]
                yield _types_batch([WORD] * len(some), words, counts[some], places[some], part, path, start)
            yield _types_batch([EMPTY_LINES], [""], [tokenizer.empty_lines], [0], part, path, start)

    return task


def _types_batch(
    what: list[str], words: list[str], counts: Any, places: Any, part: int, path: str, start: int
) -> pa.RecordBatch:
    size = len(what)
    columns = [
        pa.array(what, pa.string()),
        pa.array(words, pa.string()),
        pa.array(counts, pa.int64()),
        pa.array(np.full(size, part, np.int32)),
        pa.array([path] * size, pa.string()),
        pa.array(np.full(size, start, np.int64)),
        pa.array(places, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["what", "word", "count", "part", "path", "start", "place"])


def _pieces(batches: Batches) -> Iterator[tuple[tuple[int, str, int], Iterator[bytes]]]:
    """Yield each piece of a file and its lines in blocks; a piece must be read to its end before the next one."""

    def rows() -> Iterator[tuple[tuple[int, str, int], bytes]]:
        for batch in batches:
            keys = zip(*(batch.column(name).to_pylist() for name in LINES[1:]), strict=True)
            lines = batch.column(LINES[0]).cast(pa.binary()).to_pylist()
            for key, together in itertools.groupby(zip(keys, lines, strict=True), key=lambda row: row[0]):
                yield key, b"\n".join([line for _, line in together]) + b"\n"

    for key, blocks in itertools.groupby(rows(), key=lambda row: row[0]):
        texts = (block for _, block in blocks)
        yield key, _without_mark(texts) if key[2] == 0 else texts


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a file from its start, without UTF-8's byte-order mark."""
    for block in blocks:
        yield block.removeprefix(codecs.BOM_UTF8)
        break
    yield from blocks


def ngram_columns(order: int) -> list[str]:
    """Return the names of the columns of an n-gram's words."""
    return [f"w{k}" for k in range(1, order + 1)]


def ngram_schema(order: int) -> str:
    """Return the schema of count_in_pieces: words, count, and the key that brings n-grams together."""
    return ", ".join(f"{name} int" for name in ngram_columns(order)) + ", count long, key long"


def count_in_pieces(data: DataConfig, vocabulary: Vocabulary, order: int, frequent: IntArray) -> Task:
    """Return a task that counts the n-grams of order n >= 2 of lines in pieces: rows of ngram_schema, some equal.

    Contexts at the start of a sentence are filled up with `<s>`. key: from the word before the last, and the one before
    it if the former is `frequent`, int64 `[F]`.
    """

    def task(batches: Batches) -> Batches:
        parallel.use(1)
        is_frequent = np.zeros(len(vocabulary), dtype=bool)
        is_frequent[frequent] = True
        tokenizer = tokenizer_of(data)
        remap = np.empty(0, dtype=np.uint32)
        waiting: list[Array] = []
        waiting_tokens = 0
        for _, blocks in _pieces(batches):
            for block in blocks:
                ids = tokenizer(block, "train")
                new = tokenizer.types(len(remap))
                if new:
                    remap = np.append(remap, vocabulary.encode(new).astype(np.uint32))
                waiting.append(remap[ids])
                waiting_tokens += len(ids)
                if waiting_tokens >= TOKENS_PER_PIECE:
                    yield from _counted(np.concatenate(waiting), vocabulary, order, is_frequent)
                    waiting, waiting_tokens = [], 0
        if waiting_tokens:
            yield from _counted(np.concatenate(waiting), vocabulary, order, is_frequent)

    return task


@dataclass(frozen=True, slots=True)
class _Text:
    """A text in memory (see lmtool.ngram.counting.counts.Text)."""

    ids: Array
    offsets: IntArray


def _counted(ids: Array, vocabulary: Vocabulary, order: int, is_frequent: Array) -> Batches:
    offsets = np.append(0, np.flatnonzero(ids == vocabulary.eos) + 1)
    counts = count_ngrams(_Text(ids, offsets), vocabulary, order)
    bos = vocabulary.bos
    for k in range(2, order + 1):
        first = 0 if k == order else counts.from_start(k)
        for at in range(first, counts.trie.sizes[k - 1], ROWS_PER_BATCH):
            yield _ngram_batch(counts, k, at, order, bos, is_frequent)


def _ngram_batch(counts: Counts, k: int, at: int, order: int, bos: int, is_frequent: Array) -> pa.RecordBatch:
    last = min(at + ROWS_PER_BATCH, counts.trie.sizes[k - 1])
    words = np.full((last - at, order), bos, dtype=np.int32)
    words[:, order - k :] = counts.trie.ngrams(k, at, last)
    number = counts.count[k - 1].get(at, last)
    columns = [np.ascontiguousarray(words[:, j]) for j in range(order)]
    values = [*columns, number, keys_of(columns, bos, is_frequent)]
    return pa.RecordBatch.from_arrays(list(map(pa.array, values)), names=[*ngram_columns(order), "count", "key"])


def keys_of(words: list[Array], bos: int, is_frequent: Array) -> IntArray:
    """Return the keys `[M]` that bring n-grams together: by the word before the last, or, if that is frequent and there
    is another before it, by both. words: k >= 2 arrays `[M]`; is_frequent: bool `[V]`.
    """
    before_last = words[-2].astype(np.int64)
    key: IntArray = before_last * (bos + 2)
    if len(words) > 2:
        key += np.where(is_frequent[before_last], words[-3].astype(np.int64) + 1, 0)
    return key


def rows_schema(order: int, values: str) -> str:
    """Return the schema of n-grams of several orders: k, the words (-1 after the last), and further columns."""
    return f"k int, {', '.join(f'{name} int' for name in ngram_columns(order))}, {values}"


def rows_of(k: int, words: list[Array], order: int, values: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return rows of rows_schema; words: at most n arrays `[M]`."""
    size = len(words[0])
    filled = [pa.array(column.astype(np.int32)) for column in words]
    filled += [pa.array(np.full(size, -1, np.int32))] * (order - len(words))
    columns = [pa.array(np.full(size, k, np.int32)), *filled, *values.values()]
    return pa.RecordBatch.from_arrays(columns, names=["k", *ngram_columns(order), *values])


def row_batches(at: IntArray, words: list[Array], order: int, **values: Array | None) -> Batches:
    """Yield rows of rows_schema for the n-grams at indices `at` `[M]`, in batches.

    words: k arrays `[N]`. values: further columns `[N]`; None is a column of nulls.
    """
    for first in range(0, len(at), ROWS_PER_BATCH):
        here = at[first : first + ROWS_PER_BATCH]
        columns = {
            name: pa.nulls(len(here), pa.float64()) if column is None else pa.array(column[here])
            for name, column in values.items()
        }
        yield rows_of(len(words), [column[here] for column in words], order, columns)


def of_levels(order: int, bos: int, rows: Callable[[list[Level]], Batches]) -> Task:
    """Return a task that applies `rows` to the levels of a partition of count_in_pieces."""

    def task(batches: Batches) -> Batches:
        for *words, count in held(batches, *ngram_columns(order), "count"):
            yield from rows(levels(words, count, bos))

    return task


def held(batches: Batches, *names: str) -> Iterator[list[Array]]:
    """Yield these columns `[R]` of a whole partition, once, if it has any rows."""
    parallel.use(1)
    waiting = list(batches)
    if sum(batch.num_rows for batch in waiting):
        table = pa.Table.from_batches(waiting)
        columns = [table.column(name).to_numpy() for name in names]
        del waiting, table
        yield columns


def order_schema(order: int) -> str:
    """Return the schema of count_orders: n-grams with their counts."""
    return rows_schema(order, "count long")


def count_orders(order: int, bos: int) -> Task:
    """Return a task for the n-grams of orders 2 to n of a partition of count_in_pieces: rows of order_schema."""

    def rows(made: list[Level]) -> Batches:
        for level in made:
            yield from row_batches(np.flatnonzero(level.real), level.words, order, count=level.count)

    return of_levels(order, bos, rows)


def newest_of(words: list[Array], ranks: IntArray) -> list[int] | None:
    """Return the n-gram that KenLM sorts last (see kenlm_ranks), or None if none ends in the word of the last rank.

    The first word is not compared: KenLM's n-gram is one word shorter.
    """
    at = np.flatnonzero(words[-1] == ranks.argmax())
    for column in words[-2:0:-1]:
        if not len(at):
            break
        before = ranks[column[at]]
        at = at[before == before.max()]
    return [int(column[at[0]]) for column in words] if len(at) else None
