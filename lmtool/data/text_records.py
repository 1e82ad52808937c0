"""Many texts in files, in blocks: each line is one, or each record of JSON Lines or Parquet, and their order is kept.

The blocks are the same whenever the same files are read: work on them can be resumed by their number.
"""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lmtool.data.readers import (
    MEMBER,
    PARQUET,
    ROWS,
    checked_blocks,
    document_lines,
    form_of,
    json_texts,
    parquet_texts,
    read_errors,
    require_column,
    whole_lines,
)
from lmtool.data.tokenizer import TextBlock, line_ends
from lmtool.data.unpacking import open_files
from lmtool.errors import UserError, first_line
from lmtool.system.files import cannot_write, opened

AT_ONCE = 1 << 22  # bytes of text, about
SETTING = "column"
Flags = npt.NDArray[np.bool_]


def text_blocks(names: Iterable[str], column: str | None, skipped: int = 0) -> Iterator[TextBlock]:
    """The texts of files, one file after the other, in blocks. column: of the text in records; None: a line is a text.

    skipped: so many blocks are left out at the beginning. Empty lines of JSON hold no record; others are empty texts.
    Raises UserError, naming file and line, for what cannot be read.
    """
    number = 0
    for name in names:
        require_column(name, column, SETTING)
        for make_block in _file_blocks(name, column):
            number += 1
            if number > skipped:
                yield make_block()


def stream_blocks(handle: IO[bytes], name: str) -> Iterator[TextBlock]:
    """The lines of an open file, such as standard input, in blocks. Raises UserError as text_blocks does."""
    for content in checked_blocks(iter([handle]), name):
        yield _lines_block(content)


def _lines_block(content: bytes) -> TextBlock:
    return TextBlock(content, line_ends(content))


def _json_block(content: bytes, name: str, column: str, line: int) -> TextBlock:
    return block_of(json_texts(io.BytesIO(content), name, column, SETTING, line))


def block_of(texts: Iterable[str]) -> TextBlock:
    """Texts as one block; a text may have several lines."""
    lines = [document_lines(text) for text in texts]
    return TextBlock(b"".join(lines), np.cumsum([len(text) for text in lines], dtype=np.int64))


def blocks_of(texts: Iterable[str]) -> Iterator[TextBlock]:
    """Texts in blocks of about AT_ONCE bytes."""
    return map(block_of, _portions(texts))


def _portions(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text) + 1
        if size >= AT_ONCE:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _file_blocks(name: str, column: str | None) -> Iterator[Callable[[], TextBlock]]:
    """For each block of a file a function that makes it: what is skipped is not parsed."""
    path, _, member = name.partition(MEMBER)
    with read_errors(name):
        if column is None:
            for content in checked_blocks(open_files(path, member), name):
                yield partial(_lines_block, content)
            return
        for handle in open_files(path, member):
            if form_of(member or path) == PARQUET:
                for texts in _portions(parquet_texts(handle, name, column, SETTING)):
                    yield partial(block_of, texts)
                continue
            line = 1
            for content in whole_lines(handle, name):
                yield partial(_json_block, content, name, column, line)
                line += content.count(b"\n")


def require_writable(names: list[str], column: str | None, to: str, setting: str) -> None:
    """Raise UserError where the records of files cannot be written to a file of this name as they stand."""
    in_parquet = [form_of(name.partition(MEMBER)[2] or name.partition(MEMBER)[0]) == PARQUET for name in names]
    if column is None or not any(in_parquet):
        if form_of(to) == PARQUET:
            raise UserError(f"{setting}={to}: the texts are lines, which Parquet does not hold: name a text file")
    elif not all(in_parquet):
        raise UserError(f"{setting}={to}: Parquet and other files together cannot be written to one: score them apart")
    elif form_of(to) != PARQUET:
        raise UserError(f"{setting}={to}: the texts are rows of Parquet: name a file that ends in .parquet")


def write_chosen(names: Iterable[str], column: str | None, chosen: Iterator[Flags], to: Path, called: str) -> None:
    """Write the records, as they stand, that are chosen. chosen: of all records in their order, some at a time.

    to: the file; called: the name that it is to have, whose suffix says how it is packed.
    """
    flags = _Flags(chosen)
    with ExitStack() as files:
        writer: Any = None
        for name in names:
            path, _, member = name.partition(MEMBER)
            with read_errors(name):
                for handle in open_files(path, member):
                    if column is not None and form_of(member or path) == PARQUET:
                        for table in _chosen_rows(handle, flags):
                            with _write_errors(called):
                                writer = writer or files.enter_context(_parquet_file(to, table))
                                if table.num_rows:
                                    writer.write_table(table)
                    else:
                        writer = writer or files.enter_context(packed_file(to, called))
                        for lines in _chosen_lines(handle, name, flags, empty=column is None):
                            with _write_errors(called):
                                writer.write(lines)


class _Flags:
    """Flags that are taken in other portions than they come in."""

    def __init__(self, parts: Iterator[Flags]) -> None:
        self._parts = parts
        self._waiting: Flags = np.empty(0, dtype=bool)

    def take(self, count: int) -> Flags:
        parts = [self._waiting]
        while sum(map(len, parts)) < count:
            parts.append(next(self._parts))
        flags = np.concatenate(parts)
        self._waiting = flags[count:]
        return flags[:count]


def _chosen_lines(handle: IO[bytes], name: str, flags: _Flags, *, empty: bool) -> Iterator[bytes]:
    """empty: whether an empty line is a record, too."""
    blocks = checked_blocks(iter([handle]), name) if empty else whole_lines(handle, name)
    for content in blocks:
        lines = [line for line in io.BytesIO(content) if empty or line.strip()]
        yield b"".join([lines[k] for k in np.flatnonzero(flags.take(len(lines))).tolist()])


def _chosen_rows(handle: IO[bytes], flags: _Flags) -> Iterator[Any]:
    """Tables of rows, one of no rows first."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(handle)
    yield rows.schema_arrow.empty_table()
    for batch in rows.iter_batches(batch_size=ROWS):
        yield pa.Table.from_batches([batch.filter(pa.array(flags.take(batch.num_rows)))])


def _parquet_file(to: Path, table: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(to, table.schema)


@contextmanager
def _write_errors(name: str) -> Iterator[None]:
    """Raise UserError where the file that is to have a name cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise cannot_write(Path(name), error) from error
    except ValueError as error:  # pyarrow's, of another schema
        raise UserError(f"{name}: the files have other columns each: score them apart ({first_line(error)})") from error


@contextmanager
def packed_file(path: Path, name: str) -> Iterator[IO[bytes]]:
    """A file to write, packed as the suffix of a name says: .gz, .xz, .bz2, .zst, or not at all."""
    match PurePosixPath(name).suffix:
        case ".xz":
            with lzma.open(path, "wb") as packed:
                yield packed
        case ".bz2":
            with bz2.open(path, "wb") as packed:
                yield packed
        case ".zst":
            import pyarrow as pa

            with pa.OSFile(str(path), "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as file:
                yield file
        case suffix:
            with opened(path, packed=suffix == ".gz") as plain:
                yield plain
