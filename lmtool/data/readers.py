"""Read text files as blocks of whole lines: plain, .gz, .xz, .bz2, .zst, or a member of a .zip; always UTF-8.

They are on this machine or at an address (lmtool.data.remote). They hold lines, or documents in JSON Lines or Parquet:
a named column has the text, and each line of a document is a line.

A UTF-8 byte-order mark at the start of a line is not part of its text.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lmtool.data.encodings import KENLM_BINARY, check_text, require_utf8, without_marks
from lmtool.data.unpacking import DAMAGES, open_files
from lmtool.errors import UserError, first_line

BLOCK = 4 << 20  # bytes read at once
LONGEST_LINE = 64 << 20  # bytes; more than this in one line is not text
PACKED = (".gz", ".xz", ".bz2", ".zst")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
TABLES = (".tsv", ".csv")
ROWS = 1 << 12
DOCUMENT_BLOCK = 1 << 20  # characters in a block of documents, about
MEMBER = "::"  # archive.zip::folder/file.txt


class FileLines(bytes):
    """A block of whole lines of a file. file: its name; first: the number of the block's first line."""

    file: str
    first: int

    @classmethod
    def of(cls, block: bytes, file: str, first: int) -> FileLines:
        """Return a block with its place."""
        lines = cls(block)
        lines.file, lines.first = file, first
        return lines


def read_blocks(
    *names: str,
    column: str | None = None,
    setting: str = "data.column",
    at_once: int = DOCUMENT_BLOCK,
    tables: bool = False,
) -> Iterator[bytes]:
    """Yield blocks of whole lines of text files, one file after the other, each valid UTF-8 and ending in a newline.

    column: name of the text column in files of documents; None for lines of text. setting: what the user calls it.
    at_once: characters of documents per block; 0 makes each a block. tables: whether files may be tables. names: paths
    and addresses; for a .zip `PATH::MEMBER`, where MEMBER may be a pattern such as `*.txt`, or the path alone for all
    its files, in the order of their names. Raises UserError for a file that is missing, cannot be unpacked or is not
    UTF-8, and if all are empty.
    """
    what = names[0] if len(names) == 1 else f"each of the {len(names):,} files from {names[0]} on"
    return _not_empty((block for name in names for block in _file_blocks(name, column, setting, at_once, tables)), what)


def _file_blocks(name: str, column: str | None, setting: str, at_once: int, tables: bool) -> Iterator[bytes]:
    path, _, member = name.partition(MEMBER)
    with read_errors(name):
        for handle in open_files(path, member):
            called = name_of(handle, name)
            require_column(called, column, setting, tables=tables)
            if column is None:
                yield from checked_blocks(handle, called)
                continue
            if form_of(called) == PARQUET:
                documents = parquet_texts(handle, called, column, setting)
            else:
                lines = chain.from_iterable(map(io.BytesIO, whole_lines(handle, called)))
                documents = json_texts(lines, called, column, setting)
            yield from blocks_of_documents(documents, called, at_once)


def name_of(handle: IO[bytes], name: str) -> str:
    """Return what errors call an open file of a name: the member of a .zip, whose lines are numbered from 1."""
    return handle.name if name.partition(MEMBER)[0].endswith(".zip") else name


def require_column(name: str, column: str | None, setting: str, *, tables: bool = False) -> None:
    """Raise UserError if a file is a table, by its name, which it may not be, or holds documents of no column."""
    if form_of(name, TABLES) is not None and not tables:
        remedy = f"write its text to a .txt file, a line each, or its rows as JSON Lines, whose column {setting} names"
        raise UserError(f"{name} is a table, not lines of text: {remedy}")
    if column is None and form_of(name) is not None:
        raise UserError(f"{name} holds documents, not lines of text: name the column of their text by {setting}")


@contextmanager
def read_errors(name: str) -> Iterator[None]:
    """Raise UserError, naming the file, for errors in the block, which reads a file of text."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"no file {name.partition(MEMBER)[0]}: check the path") from None
    except DAMAGES as error:
        raise UserError(f"{name} cannot be unpacked ({error}): fetch it again") from error
    except BrokenPipeError:  # of standard output, which is flushed before standard input is read
        raise
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}") from error


def read_stream(handle: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines of an open file, such as standard input; `name` is what errors call it.

    Raises UserError as stream_blocks does, and if the text is empty.
    """
    return _not_empty(stream_blocks(handle, name), name)


def stream_blocks(handle: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield what read_stream does. Raises UserError if the text is not UTF-8, and if it cannot be unpacked."""
    with read_errors(name):
        yield from checked_blocks(handle, name)


def _not_empty(blocks: Iterator[bytes], what: str) -> Iterator[bytes]:
    empty = True
    for block in blocks:
        empty = empty and block.isspace()
        yield block
    if empty:
        raise UserError(f"{what} is empty: give a file with text in it")


def checked_blocks(handle: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines of an open file. Raises UserError, naming the line, if the text is not UTF-8."""
    line = 1
    for block in whole_lines(handle, name):
        text = FileLines.of(without_marks(block, name, begins_file=line == 1), name, line)
        check_text(text, name, line)
        line += block.count(b"\n")
        yield text


def whole_lines(handle: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield blocks of about BLOCK bytes that end with a line; the last line gets a newline.

    In a file without newlines a carriage return ends a line. Raises UserError for UTF-16, UTF-32, and
    a line that is too long for text.
    """
    waiting: list[bytes] = []  # the pieces of a line that has not ended yet
    waiting_bytes, has_newlines = 0, False
    block = handle.read(BLOCK)
    require_utf8(block, name)
    while block:
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*waiting, block[:cut]])
            waiting, waiting_bytes, has_newlines = [], 0, True
        waiting.append(block[cut:])
        waiting_bytes += len(block) - cut
        if waiting_bytes > LONGEST_LINE:
            raise UserError(
                f"{name} has a line of over {LONGEST_LINE >> 20} MiB: is it one sentence or object per line?"
            )
        block = handle.read(BLOCK)
    if waiting_bytes:
        rest = b"".join(waiting)
        yield (rest if has_newlines else rest.removesuffix(b"\r").replace(b"\r", b"\n")) + b"\n"


def is_kenlm_binary(path: Path) -> bool:
    """Return whether a path is one of KenLM's binary files."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(KENLM_BINARY)) == KENLM_BINARY


def read_bytes(name: str) -> bytes:
    """Read a small file, on this machine or at an address, unpacked.

    Raises UserError if it cannot be read.
    """
    path, _, member = name.partition(MEMBER)
    try:
        return b"".join(handle.read() for handle in open_files(path, member))
    except (OSError, *DAMAGES) as error:
        raise UserError(f"cannot read {name}: {error}") from error


def read_text(name: str) -> str:
    """Read a small text file, such as a word list; "\\r\\n" becomes "\\n". Raises UserError as read_blocks does."""
    return b"".join(read_blocks(name, tables=True)).decode("utf-8").replace("\r\n", "\n")


def form_of(name: str, forms: tuple[str, ...] = (*JSON_LINES, PARQUET)) -> str | None:
    """Return the format of a file (or `PATH::MEMBER`) by its name, if it is one of `forms`; None for others."""
    path = PurePosixPath(name)
    if path.suffix in PACKED:
        path = path.with_suffix("")
    return path.suffix if path.suffix in forms else None


def batches_of(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield texts in batches of about `size` characters; 0 makes each text a batch."""
    waiting: list[str] = []
    characters = 0
    for text in texts:
        waiting.append(text)
        characters += len(text) + 1
        if characters >= size:
            yield waiting
            waiting, characters = [], 0
    if waiting:
        yield waiting


def blocks_of_documents(documents: Iterable[str], name: str, at_once: int = DOCUMENT_BLOCK) -> Iterator[bytes]:
    """Yield documents in blocks of whole lines, UTF-8; each begins a line. Raises UserError if they are not text.

    name: what errors call them. at_once: approximate characters per block; 0 makes each document a block.
    """
    for batch in batches_of(documents, at_once):
        block = without_marks(b"".join(map(document_lines, batch)), name)
        check_text(block, name, 1)
        yield block


def document_lines(document: str) -> bytes:
    """Return the lines of a document, UTF-8, each ending in a newline."""
    text = document.replace("\r\n", "\n").removesuffix("\n").encode("utf-8", "surrogatepass")
    return text + b"\n"


def json_texts(lines: Iterable[bytes], name: str, column: str, setting: str) -> Iterator[str]:
    """Yield the text of each line, a JSON object; empty lines are skipped.

    Raises UserError as json_value does, and for a value that is not text.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{name}, line {number}"
            yield text_of(json_value(line, where, column, setting), where, column, setting)


def json_document(line: bytes, where: str, setting: str) -> Any:
    """Return a line of JSON as a value. Raises UserError, naming the place, if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}): {setting} reads one object per line") from None


def json_value(line: bytes, where: str, column: str, setting: str, others: Iterable[str] = ()) -> Any:
    """Return the value of a column of a JSON object. others: further columns that it must have.

    Raises UserError, naming the place, if the line is anything other than an object with these columns.
    """
    document = json_document(line, where, setting)
    known = ", ".join(sorted(document)) if isinstance(document, dict) else f"a {type(document).__name__}"
    for key, name in ((setting, column), *((f"{setting}s", other) for other in others)):
        if not isinstance(document, dict) or name not in document:
            raise UserError(f"{where}: it has no {name!r}: {key} names one of: {known}")
    return document[column]


def parquet_texts(handle: IO[bytes], name: str, column: str, setting: str) -> Iterator[str]:
    """Yield the text of each row. Raises UserError as parquet_columns does, and for a value that is not text."""
    values = (batch for (batch,) in parquet_columns(handle, name, [column], f"{setting} names one of"))
    return texts_of_rows(chain.from_iterable(values), name, column, setting)


def texts_of_rows(values: Iterable[Any], name: str, column: str, setting: str) -> Iterator[str]:
    """Yield the text of the value of each row. Raises UserError, naming the row, for a value that is not text."""
    for row, value in enumerate(values, start=1):
        yield text_of(value, f"{name}, row {row}", column, setting)


def parquet_columns(handle: IO[bytes], name: str, columns: list[str], remedy: str) -> Iterator[list[list[Any]]]:
    """Yield the values of columns of a Parquet file, some rows at a time. Raises UserError as parquet_batches does."""
    for batch in parquet_batches(handle, name, columns, remedy):
        yield [column_values(batch, column, name) for column in columns]


def parquet_batches(
    handle: IO[bytes], name: str, columns: list[str], remedy: str, *, whole: bool = False
) -> Iterator[Any]:
    """Yield columns of a Parquet file as pyarrow.RecordBatch of at most ROWS rows; an empty one if it has no rows.

    whole: read all columns. remedy: what the error for a missing column says before the names of the columns.

    A file that cannot be read at any place, such as a packed one, is held in memory. Raises UserError if a column is
    missing, the file is not a Parquet file, or pyarrow is not installed.
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
    """Return the values of a column of a pyarrow.RecordBatch. name: of its file, for the UserError if it is damaged."""
    with _parquet_errors(name):
        return list(map(decoded, batch.column(column).to_pylist()))


def decoded(value: Any) -> Any:
    """Return bytes in UTF-8 as text, which some programs write to Parquet as bytes; other values unchanged."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


@contextmanager
def _parquet_errors(name: str) -> Iterator[None]:
    """Raise UserError, naming the file, for the errors of pyarrow in the block."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        # OSError: damage inside; ValueError, OverflowError: values that Python cannot hold.
        raise UserError(f"{name} is damaged or not a Parquet file ({first_line(error)}): copy it again") from error


def text_of(value: Any, where: str, column: str, setting: str) -> str:
    """Return the text of a document, "" for None. Raises UserError, naming the place, if it is not text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is not text ({type(value).__name__}): name another column by {setting}")
    return value
