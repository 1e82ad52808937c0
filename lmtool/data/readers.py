"""Read text files as blocks of whole lines: plain, .gz, .xz, .bz2, .zst, or a member of a .zip; always UTF-8.

Files are on this machine or at an address (lmtool.data.remote). They contain lines, or documents in JSON Lines or
Parquet, whose text is in a named column; each line of a document is a line.

A UTF-8 byte-order mark at the start of a line is not part of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

from lmtool.data.documents import json_texts, parquet_texts
from lmtool.data.faults import (
    KENLM_BINARY,
    STOP,
    STOP_AT_FAULTS,
    Faults,
    FileLines,
    check_text,
    require_utf8,
    without_marks,
)
from lmtool.data.remote import is_address
from lmtool.data.unpacking import DAMAGES, open_files
from lmtool.errors import RecordError, UserError

BLOCK = 4 << 20  # bytes read at once
LONGEST_LINE = 64 << 20  # maximum bytes of a line of text
PACKED = (".gz", ".xz", ".bz2", ".zst")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
TABLES = (".tsv", ".csv")
DOCUMENT_BLOCK = 1 << 20  # approximate number of characters in a block of documents
T = TypeVar("T")
MEMBER = "::"  # archive.zip::folder/file.txt


def read_blocks(
    *names: str,
    column: str | None = None,
    setting: str = "data.column",
    at_once: int = DOCUMENT_BLOCK,
    tables: bool = False,
    faults: Faults = STOP_AT_FAULTS,
) -> Iterator[bytes]:
    """Yield blocks of whole lines of text files, one file after the other, each valid UTF-8 and ending in a newline.

    column: name of the text column in files of documents; None for lines of text.
    setting: name of the setting, for errors.
    at_once: characters of documents per block; 0 makes each document a block.
    tables: whether files may be tables.
    names: paths and addresses; for a .zip `PATH::MEMBER`, where MEMBER may be a pattern such as `*.txt`, or the path
    alone for all its files, in the order of their names.
    faults: collects the faults of lines, documents and the rest of a damaged file, which are left out.
    Raises UserError for a file that is missing, cannot be unpacked or is not UTF-8, and if all are empty.
    """

    def blocks() -> Iterator[bytes]:
        for name in names:
            path, _, member = name.partition(MEMBER)
            with read_errors(name, faults):
                for handle in open_files(path, member):
                    called = name_of(handle, name)
                    require_column(called, column, setting, tables=tables)
                    if column is None:
                        yield from checked_blocks(handle, called, faults)
                        continue
                    if format_of_name(called) == PARQUET:
                        documents = parquet_texts(handle, called, column, setting, faults)
                    else:
                        documents = json_texts(whole_lines(handle, called, faults), called, column, setting, faults)
                    yield from blocks_of_documents(documents, called, at_once)

    return _not_empty(blocks(), names[0] if len(names) == 1 else f"each of the {len(names):,} files from {names[0]} on")


def name_of(handle: IO[bytes], name: str) -> str:
    """Return the name of an open file in errors: for a .zip, its member, whose lines are numbered from 1."""
    return handle.name if name.partition(MEMBER)[0].endswith(".zip") else name


def require_column(name: str, column: str | None, setting: str, *, tables: bool = False) -> None:
    """Raise UserError if, by its name, a file is a table and may not be, or has documents and no column is set."""
    if format_of_name(name, TABLES) is not None and not tables:
        remedy = f"write its text to a .txt file, a line each, or its rows as JSON Lines, whose column {setting} names"
        raise UserError(f"{name} is a table, not lines of text: {remedy}")
    if column is None and format_of_name(name) is not None:
        raise UserError(f"{name} holds documents, not lines of text: name the column of their text by {setting}")


@contextmanager
def read_errors(name: str, faults: Faults = STOP_AT_FAULTS) -> Iterator[None]:
    """Raise UserError for errors in the block, which reads a text file. faults: of the data, which end the block."""
    with faults:
        try:
            yield
        except FileNotFoundError:
            raise UserError(f"no file {name.partition(MEMBER)[0]}: check the path") from None
        except DAMAGES as error:
            raise RecordError(f"{name} cannot be unpacked ({error}): fetch it again") from error
        except BrokenPipeError:  # raised by standard output, which is flushed before reading
            raise
        except OSError as error:
            damaged = type(error) is OSError and error.errno is None and not is_address(name)  # from bz2 and pyarrow
            kind = RecordError if damaged else UserError
            raise kind(f"cannot read {name}: {error.strerror or error}") from error


def read_stream(handle: IO[bytes], name: str, faults: Faults = STOP_AT_FAULTS) -> Iterator[bytes]:
    """Yield the same blocks as stream_blocks. Also raises UserError if the text is empty."""
    return _not_empty(stream_blocks(handle, name, faults), name)


def stream_blocks(handle: IO[bytes], name: str, faults: Faults = STOP_AT_FAULTS) -> Iterator[bytes]:
    """Yield blocks of whole lines of an open file, such as standard input, without faults. name: for errors."""
    with read_errors(name, faults):
        yield from checked_blocks(handle, name, faults)


def _not_empty(blocks: Iterator[bytes], what: str) -> Iterator[bytes]:
    empty = True
    for block in blocks:
        empty = empty and not block.strip()
        yield block
    if empty:
        raise UserError(f"{what} is empty: give a file with text in it")


def checked_blocks(handle: IO[bytes], name: str, faults: Faults = STOP_AT_FAULTS) -> Iterator[bytes]:
    """Yield blocks of whole lines of an open file, without lines that are not UTF-8, which are faults."""
    for block in whole_lines(handle, name, faults):
        text = FileLines.of(without_marks(block, name, begins_file=block.first == 1), name, block.first)
        try:
            check_text(text, name)
            yield text
        except RecordError:
            yield text.without_faults(check_text, faults)


def whole_lines(handle: IO[bytes], name: str, faults: Faults = STOP_AT_FAULTS) -> Iterator[FileLines]:
    """Yield blocks of about BLOCK bytes that end with a line; the last line gets a newline.

    In a file without newlines a carriage return ends a line. A line that is too long for text is a fault, and left out.
    Raises RecordError for UTF-16 and UTF-32.
    """
    waiting: list[bytes] = []  # the pieces of an unfinished line
    waiting_bytes, number, has_newlines = 0, 1, False
    blocks = _blocks(handle, passed=faults.on_error != STOP)
    block = next(blocks, b"")
    require_utf8(block, name)
    while block:
        end = block.find(b"\n")  # end of the unfinished line
        if waiting_bytes + (end if end >= 0 else len(block)) > LONGEST_LINE:
            with faults:
                what = f"a line of over {LONGEST_LINE >> 20} MiB: is it one sentence or object per line?"
                raise RecordError(f"{name}, line {number}: {what}")
            waiting, waiting_bytes, has_newlines = [], 0, True
            number += 1
            yield FileLines.of(b"", name, number)  # so that the fault is seen in its place
            while block and b"\n" not in block:
                block = next(blocks, b"")
            block = block[block.find(b"\n") + 1 :] or next(blocks, b"")
            continue
        cut = block.rfind(b"\n") + 1
        if cut:
            yield (lines := FileLines.of(b"".join([*waiting, block[:cut]]), name, number))
            waiting, waiting_bytes, has_newlines = [], 0, True
            number += lines.count(b"\n")
        waiting.append(block[cut:])
        waiting_bytes += len(block) - cut
        block = next(blocks, b"")
    if waiting_bytes:
        rest = b"".join(waiting)
        rest = rest if has_newlines else rest.removesuffix(b"\r").replace(b"\r", b"\n")
        yield FileLines.of(rest + b"\n", name, number)


def _blocks(handle: IO[bytes], *, passed: bool) -> Iterator[bytes]:
    """Yield about BLOCK bytes at a time. passed: whether bytes before damage are yielded before its error."""
    read1 = getattr(handle, "read1", None)
    if read1 is None:  # standard input, which chooses the size of blocks
        yield from iter(lambda: handle.read(BLOCK), b"")
        return
    size = 1
    while size:
        pieces, size = [], 0
        try:
            while size < BLOCK and (piece := read1(BLOCK - size)):
                pieces.append(piece)
                size += len(piece)
        except (OSError, *DAMAGES):
            if pieces and passed:
                yield b"".join(pieces)
            raise
        if pieces:
            yield b"".join(pieces)


def is_kenlm_binary(path: Path) -> bool:
    """Return whether a path is one of KenLM's binary files."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(KENLM_BINARY)) == KENLM_BINARY


def read_bytes(name: str) -> bytes:
    """Read a small file, on this machine or at an address, unpacked."""
    path, _, member = name.partition(MEMBER)
    with read_errors(name):
        return b"".join(handle.read() for handle in open_files(path, member))


def read_text(name: str) -> str:
    """Read a small text file, such as a word list; "\\r\\n" becomes "\\n"."""
    return b"".join(read_blocks(name, tables=True)).decode("utf-8").replace("\r\n", "\n")


def format_of_name(name: str, suffixes: tuple[str, ...] = (*JSON_LINES, PARQUET)) -> str | None:
    """Return the format of a file (or `PATH::MEMBER`) by its name, if it is one of `suffixes`; None for others."""
    path = PurePosixPath(name)
    if path.suffix in PACKED:
        path = path.with_suffix("")
    return path.suffix if path.suffix in suffixes else None


def batches_of(texts: Iterable[T], size: int, length: Callable[[Any], int] = len) -> Iterator[list[T]]:
    """Yield texts in batches of about `size` characters; 0 makes each text a batch. length: of a text."""
    waiting: list[T] = []
    characters = 0
    for text in texts:
        waiting.append(text)
        characters += length(text) + 1
        if characters >= size:
            yield waiting
            waiting, characters = [], 0
    if waiting:
        yield waiting


def blocks_of_documents(
    documents: Iterable[tuple[str, str]], name: str, at_once: int = DOCUMENT_BLOCK
) -> Iterator[FileLines]:
    """Yield documents with their places in blocks of whole lines, of about `at_once` characters. name: in notes."""
    for batch in batches_of(documents, at_once, lambda document: len(document[1])):
        yield FileLines.of_records([(where, document_lines(text)) for where, text in batch], name)


def document_lines(document: str) -> bytes:
    """Return the lines of a document, UTF-8, each ending in a newline."""
    text = document.replace("\r\n", "\n").removesuffix("\n").encode("utf-8", "surrogatepass")
    return text + b"\n"
