"""Read many texts from files in blocks, in their order: each line is a text, or each record of JSON Lines or Parquet.

The same files always give the same blocks, so that work on them can be resumed by the number of a block.
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
    OnBroken,
    batches_of,
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

BLOCK_BYTES = 1 << 22  # of text per block, about
SETTING = "column"
Flags = npt.NDArray[np.bool_]


def text_blocks(
    names: Iterable[str], column: str | None, skipped: int = 0, on_broken: OnBroken = None
) -> Iterator[TextBlock]:
    """Yield the texts of files, one file after the other, in blocks.

    column: name of the text column in records; None: a line is a text. skipped: number of blocks to leave out at the
    beginning. on_broken: as in json_texts. Empty lines are empty texts, except in JSON Lines, where they are skipped.
    Raises UserError, naming file and line, if one cannot be read.
    """
    number = 0
    for name in names:
        require_column(name, column, SETTING)
        for make_block in _file_blocks(name, column, on_broken):
            number += 1
            if number > skipped:
                yield make_block()


def stream_blocks(handle: IO[bytes], name: str) -> Iterator[TextBlock]:
    """Yield the lines of an open file, such as standard input, in blocks. Raises UserError as text_blocks does."""
    for content in checked_blocks(iter([handle]), name):
        yield _lines_block(content)


def _lines_block(content: bytes) -> TextBlock:
    return TextBlock(content, line_ends(content))


def _json_block(content: bytes, name: str, column: str, line: int, on_broken: OnBroken) -> TextBlock:
    return block_of(json_texts(io.BytesIO(content), name, column, SETTING, line, on_broken))


def block_of(texts: Iterable[str]) -> TextBlock:
    """Return texts as one block; a text may have several lines."""
    lines = [document_lines(text) for text in texts]
    return TextBlock(b"".join(lines), np.cumsum([len(text) for text in lines], dtype=np.int64))


def blocks_of(texts: Iterable[str]) -> Iterator[TextBlock]:
    """Yield texts in blocks of about BLOCK_BYTES bytes."""
    return map(block_of, batches_of(texts, BLOCK_BYTES))


def _file_blocks(name: str, column: str | None, on_broken: OnBroken) -> Iterator[Callable[[], TextBlock]]:
    """Yield for each block of a file a function that makes it: skipped blocks are not parsed."""
    path, _, member = name.partition(MEMBER)
    with read_errors(name):
        if column is None:
            for content in checked_blocks(open_files(path, member), name):
                yield partial(_lines_block, content)
            return
        for handle in open_files(path, member):
            if form_of(name) == PARQUET:
                for texts in batches_of(parquet_texts(handle, name, column, SETTING), BLOCK_BYTES):
                    yield partial(block_of, texts)
                continue
            line = 1
            for content in whole_lines(handle, name):
                yield partial(_json_block, content, name, column, line, on_broken)
                line += content.count(b"\n")


def require_writable(names: list[str], column: str | None, to: str, setting: str) -> None:
    """Raise UserError if the records of files cannot be written unchanged to a file of this name."""
    in_parquet = [form_of(name) == PARQUET for name in names]
    if column is None or not any(in_parquet):
        if form_of(to) == PARQUET:
            raise UserError(
                f"{setting}={to}: the texts are lines, which cannot be written to Parquet: name a text file"
            )
    elif not all(in_parquet):
        raise UserError(f"{setting}={to}: Parquet and other files cannot be written to one file: score them separately")
    elif form_of(to) != PARQUET:
        raise UserError(f"{setting}={to}: the texts are rows of Parquet: name a file that ends in .parquet")


def write_chosen(names: Iterable[str], column: str | None, chosen: Iterator[Flags], to: Path, called: str) -> None:
    """Write the chosen records unchanged. chosen: flags of all records in their order, some at a time.

    to: the file. called: its final name, whose suffix says how it is packed.
    """
    flags = _Flags(chosen)
    with ExitStack() as files:
        writer: Any = None
        for name in names:
            path, _, member = name.partition(MEMBER)
            with read_errors(name):
                for handle in open_files(path, member):
                    if column is not None and form_of(name) == PARQUET:
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
    """Flags to be taken in other portions than they arrive in."""

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
    """Yield the chosen lines of a file, in blocks. empty: whether an empty line is a record, too."""
    blocks = checked_blocks(iter([handle]), name) if empty else whole_lines(handle, name)
    for content in blocks:
        lines = [line for line in io.BytesIO(content) if empty or line.strip()]
        yield b"".join([lines[k] for k in np.flatnonzero(flags.take(len(lines))).tolist()])


def _chosen_rows(handle: IO[bytes], flags: _Flags) -> Iterator[Any]:
    """Yield tables of the chosen rows, after one without rows."""
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
    """Raise UserError, naming the file, if it cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise cannot_write(Path(name), error) from error
    except ValueError as error:  # pyarrow's, of another schema
        raise UserError(
            f"{name}: the files have different columns: score them separately ({first_line(error)})"
        ) from error


@contextmanager
def packed_file(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file to write, packed as the suffix of a name says: .gz, .xz, .bz2, .zst, or not at all."""
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
