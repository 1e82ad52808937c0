"""Tasks of Spark's workers: functions from Arrow batches to Arrow batches.

The workers need lmtool, without torch, and the Python version of the driver.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lmtool.config.data import DataConfig
from lmtool.data.faults import Faults, FileLines, check_text, require_utf8, without_marks
from lmtool.data.first_pass import mark_checker, tokenizer_of
from lmtool.data.readers import BLOCK, batches_of
from lmtool.data.split import Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import RecordError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.system import parallel
from lmtool.system.arrays import Array

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

# Columns of a record, a line or a document: its lines, the number of its file in the settings, its file, its piece of
# the file.
RECORDS = ["value", "part", "path", "start"]
TYPES = "what string, word string, count long, part int, path string, start long, place long"
WORD, EMPTY_LINES, PROBLEM = "word", "empty lines", "problem"  # column `what` of TYPES
TOKENS_PER_PIECE = 2_000_000  # counted in memory, at some 64 bytes each
ROWS_PER_BATCH = 1 << 18
NO_TEXT = b"\0"  # the record of a document without text


def count_types(data: DataConfig) -> Task:
    """Return a task that counts the types, and faults, of records: rows of TYPES, with first positions in pieces."""

    def task(batches: Batches) -> Batches:
        parallel.use(1)
        for (part, path, start), blocks in _pieces(batches):
            tokenizer, faults = tokenizer_of(data), Faults(data.on_error)
            counts, places, tokens = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
            try:
                for block in _usable(blocks, data, faults):
                    ids = tokenizer(block, path)
                    grown = np.bincount(ids, minlength=len(counts))
                    grown[: len(counts)] += counts
                    first = np.full(len(grown), -1, dtype=np.int64)
                    first[: len(places)] = places
                    known = first[ids] >= 0
                    new, where = np.unique(ids[~known], return_index=True)
                    first[new] = np.flatnonzero(~known)[where] + tokens
                    counts, places, tokens = grown, first, tokens + len(ids)
            except RecordError as error:
                yield _types_batch([PROBLEM], [str(error)], [1], [0], part, path, start)
                continue
            if faults.count:
                shown = len(faults.first_messages)
                numbers = [faults.count - shown + 1, *[1] * (shown - 1)]
                yield _types_batch([PROBLEM] * shown, faults.first_messages, numbers, range(shown), part, path, start)
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
    columns = {"what": what, "word": words, "count": pa.array(counts, pa.int64())}
    columns |= {"part": np.full(size, part, np.int32), "path": [path] * size, "start": np.full(size, start, np.int64)}
    return pa.RecordBatch.from_pydict(columns | {"place": pa.array(places, pa.int64())})


def _pieces(batches: Batches) -> Iterator[tuple[tuple[int, str, int], Iterator[FileLines]]]:
    """Yield each piece of a file and its records in blocks; a piece must be read to its end before the next one."""

    def rows() -> Iterator[tuple[tuple[int, str, int], list[bytes]]]:
        for batch in batches:
            keys = zip(*(batch.column(name).to_pylist() for name in RECORDS[1:]), strict=True)
            records = batch.column(RECORDS[0]).cast(pa.binary()).to_pylist()
            for key, together in itertools.groupby(zip(keys, records, strict=True), key=lambda row: row[0]):
                for some in batches_of((record for _, record in together), BLOCK):
                    yield key, some

    for key, blocks in itertools.groupby(rows(), key=lambda row: row[0]):
        yield key, _place_records(key[1], key[2], (records for _, records in blocks))


def _place_records(path: str, start: int, blocks: Iterator[list[bytes]]) -> Iterator[FileLines]:
    """Yield the records of a piece of a file in blocks with their places, numbered within the piece."""
    name, number = f"{path}, in the piece that begins at byte {start}" if start else path, 1
    for records in blocks:
        lines = b"\n".join(records) + b"\n"
        placed = None
        if lines.count(b"\n") > len(records):  # documents
            placed = [(f"{name}, record {k}", record + b"\n") for k, record in enumerate(records, number)]
        yield FileLines.of(without_marks(lines, path), name, number, placed)
        number += len(records)


def _usable(blocks: Iterator[FileLines], data: DataConfig, faults: Faults) -> Iterator[FileLines]:
    """Yield blocks without the records that cannot be counted, which are faults."""
    marks = mark_checker(data)

    def check(lines: bytes, where: str) -> None:
        if lines == NO_TEXT + b"\n":
            raise RecordError(f"{where}: a document without data.column, or none at all")
        check_text(lines, where)
        marks(lines, where)

    for number, block in enumerate(blocks):
        if not number:
            require_utf8(block, block.file)
        try:
            check(block, block.file)
            yield block
        except RecordError:
            yield block.without_faults(check, faults)


def ngram_columns(order: int) -> list[str]:
    """Return the names of the columns of an n-gram: its order k and its words, which are -1 after the k-th."""
    return ["k", *(f"w{j}" for j in range(1, order + 1))]


def ngram_schema(order: int) -> str:
    """Return the schema of n-grams of up to `order` words and their counts."""
    return ", ".join(f"{name} int" for name in ngram_columns(order)) + ", count long"


def count_in_pieces(data: DataConfig, vocabulary: Vocabulary, order: int) -> Task:
    """Return a task that counts n-grams of orders 2 to `order` in pieces: rows of ngram_schema, some equal."""

    def task(batches: Batches) -> Batches:
        parallel.use(1)
        tokenizer = tokenizer_of(data)
        remap = np.empty(0, dtype=np.uint32)
        waiting: list[Array] = []
        waiting_tokens = 0
        for _, blocks in _pieces(batches):
            for block in _usable(blocks, data, Faults(data.on_error)):
                ids = tokenizer(block, "train")
                new = tokenizer.types(len(remap))
                if new:
                    remap = np.append(remap, vocabulary.encode(new).astype(np.uint32))
                waiting.append(remap[ids])
                waiting_tokens += len(ids)
                if waiting_tokens >= TOKENS_PER_PIECE:
                    yield from _count_piece(np.concatenate(waiting), vocabulary, order)
                    waiting, waiting_tokens = [], 0
        if waiting_tokens:
            yield from _count_piece(np.concatenate(waiting), vocabulary, order)

    return task


def _count_piece(ids: Array, vocabulary: Vocabulary, order: int) -> Batches:
    offsets = np.append(0, np.flatnonzero(ids == vocabulary.eos) + 1)
    text = Split(ids, offsets, np.empty(0, dtype=np.int64), 0, vocabulary.bos)
    counts = count_ngrams(text, vocabulary, order)
    for k in range(2, order + 1):
        size = counts.trie.sizes[k - 1]
        for first in range(0, size, ROWS_PER_BATCH):
            last = min(first + ROWS_PER_BATCH, size)
            rows = np.full((order + 1, last - first), -1, dtype=np.int32)
            rows[0] = k
            rows[1 : k + 1] = counts.trie.ngrams(k, first, last).T
            columns = [*map(pa.array, rows), pa.array(counts.count[k - 1][first:last])]
            yield pa.RecordBatch.from_arrays(columns, names=[*ngram_columns(order), "count"])


def add_up(order: int) -> Task:
    """Return a task that adds up the counts of equal n-grams, which are consecutive: rows of ngram_schema."""

    def task(batches: Batches) -> Batches:
        waiting: pa.RecordBatch | None = None  # the last n-gram, which may continue in the next batch
        for batch in batches:
            if batch.num_rows == 0:
                continue
            rows = batch if waiting is None else pa.concat_batches([waiting, batch])
            is_first = np.zeros(rows.num_rows, dtype=bool)
            is_first[0] = True
            for name in ngram_columns(order):
                column = rows.column(name).to_numpy()
                is_first[1:] |= column[1:] != column[:-1]
            first = np.flatnonzero(is_first)
            count = pa.array(np.add.reduceat(rows.column("count").to_numpy(), first))
            columns = [*rows.take(pa.array(first)).columns[:-1], count]
            added = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
            yield added.slice(0, len(first) - 1)
            waiting = added.slice(len(first) - 1)
        if waiting is not None:
            yield waiting

    return task
