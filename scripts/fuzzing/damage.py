"""Turn right files into wrong ones, by edits that JSON can hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

MAX_SIZE = 1 << 20  # bytes of a text that edits may make
PLACES = st.integers(0, 1 << 16)
# What an edit replaces: one of these in the file, found by its number modulo how many there are.
UNITS = {
    "number": re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"),
    "field": re.compile(rb"[^ \t\r\n]+"),
    "line": re.compile(rb"[^\n]*\n|[^\n]+"),
}
# Letters stand for bytes, as in Latin-1.
# fmt: off
NUMBERS = [
    "-0.25", "-1.5", "-2", "-3.125", "3", "4", "10", "0.1", "-0.75e1",
    "0", "1", "-1", "2", "0.5", "-0.5", "-0", "-99", "-100", "1e9", "1e39", "-1e39", "1e400", "-1e400", "1e-400", "nan",
    "inf", "-inf", "infinity", "9" * 25, "9" * 400, "9" * 5000, "1_0", "0x10", "\xef\xbc\x91", "\xc2\xb2", "1e", "1e+",
    ".", "-", "+1", "--1", "1,5", "4294967296", "2147483647", "9223372036854775807", "9223372036854775808", "-9" * 12,
    "999999999999999", "1e308", "38.6", "true", "null", '"1"', "{}", "1" + "0" * 308, "0." + "0" * 350 + "1",
]
TOKENS = [
    "\n", " ", "\t", "\r", "\r\n", "\n\n", "\x00", "\xff", "\xc3", "\xed\xa0\x80", "\xef\xbb\xbf", "\xff\xfe",
    "\xfe\xff", "\xe2\x80\xa8", "\xc2\x85", "\xc2\xa0", "\xe3\x80\x80", "\x0b", "\x0c", "\x1c", "\x1f", "\x1a",
    "<s>", "</s>", "<unk>", "<UNK>", "<S>", "|||", "=", ":", "\\", "\\\\", "\\n", "\\s", "\\end\\", "\\data\\",
    "\\2-grams:", "{", "}", "[" * 3000, "[" * 200000, '{"a":' * 5000, '"', "\\u0000", "\\ud800", "\xf0\x9f\x98\x80",
    "a" * 5000, "\xc4\xb0", "\xe1\xba\x9e", "\xce\xa3", "\x1b[31m", "_1_", "Q", "C", "/", ",", "the", "cat", "a", "0 0",
    "\xc2\xa0the", "the\xc2\xa0cat", ")", "= [", ") \t= " * 300, " ||| " * 300, "\x80" * 300, "\xff" * 300, "|",
]
# fmt: on
BYTES = ["\x00", "\x00" * 40, "\x00" * 3000, "\xff" * 40, "".join(map(chr, range(256)))]


WHOLE = ["empty", "missing", "folder", "link", "loop"]  # damages of a whole file
Changes = list[list[Any]]


def edits(
    most: int = 3, *, units: Sequence[str] = ("byte", *UNITS), least: int = 0, tokens: Sequence[str] = ()
) -> st.SearchStrategy[Changes]:
    """Return a strategy of edits for `edited`: lists of [operation, unit, place, value]. tokens: more values."""
    unit, size = st.sampled_from(units), st.integers(1, 40)
    new = st.sampled_from([*NUMBERS, *TOKENS, *tokens] if len(units) > 1 else BYTES)
    new = new | st.sampled_from(tokens) if tokens else new
    one = st.one_of(
        st.tuples(st.sampled_from(["replace", "insert"]), unit, PLACES, new),
        st.tuples(st.sampled_from(["drop", "double"]), unit, PLACES, size),
        st.tuples(st.sampled_from(["swap", "splice"]), unit, PLACES, PLACES),
        st.tuples(st.just("flip"), st.just("byte"), PLACES, st.integers(0, 7)),
        st.tuples(st.just("cut"), st.just("byte"), PLACES, st.just(0)),
        st.tuples(st.just("times"), st.just("byte"), st.sampled_from([2, 3, 40, 5000]), st.just(0)),
    )
    return st.lists(one.map(list), min_size=least, max_size=most)


def damages(
    tokens: Sequence[str] = (), units: Sequence[str] = ("byte", *UNITS), whole: Sequence[str] = WHOLE
) -> st.SearchStrategy[Changes]:
    """Return a strategy of damages of a file for `damage`: edits, or now and then of the whole file."""
    some = edits(units=units, least=1, tokens=tokens)
    return st.integers(0, 7).flatmap(lambda k: st.sampled_from(whole).map(lambda kind: [[kind]]) if k == 7 else some)


def damage(path: Path, changes: Changes, other: Path | None = None) -> None:
    """Damage a file in place. other: what takes its place if it is of another run."""
    content = path.read_bytes()
    path.unlink()
    match changes[0][0]:
        case "missing":
            return
        case "other" if other is not None:
            shutil.copy(other, path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "empty":
            path.touch()
        case _:
            path.write_bytes(edited(content, changes))


def edited(data: bytes, changes: Changes) -> bytes:
    for operation, unit, place, value in changes:
        start, end = _span(data, unit, place)
        text = value.encode("latin-1", "replace") if isinstance(value, str) else b""
        match operation:
            case "replace":
                data = data[:start] + text + data[end:]
            case "insert":
                data = data[:start] + text + data[start:]
            case "drop":
                data = data[:start] + data[_span(data, unit, place, value)[1] :]
            case "double":
                end = _span(data, unit, place, value)[1]
                data = data[:end] + data[start:end] + data[end:]
            case "swap":
                (start, end), (first, last) = sorted([(start, end), _span(data, unit, value)])
                if end <= first:
                    data = data[:start] + data[first:last] + data[end:first] + data[start:end] + data[last:]
            case "splice":
                data = data[:start] + data[_span(data, unit, value)[0] :]
            case "flip" if start < end:
                data = data[:start] + bytes([data[start] ^ 1 << value]) + data[end:]
            case "cut":
                data = data[:start]
            case "times":
                data = data * min(place, max(1, MAX_SIZE // max(1, len(data))))
    return data


def _span(data: bytes, unit: str, place: int, count: int = 1) -> tuple[int, int]:
    """Return the span of `count` units from a place on, or the end of the data if it has no such unit."""
    if unit == "byte":
        start = place % max(1, len(data))
        return start, min(start + count, len(data))
    found = [match.span() for match in UNITS[unit].finditer(data)]
    if not found:
        return len(data), len(data)
    first = place % len(found)
    return found[first][0], found[min(first + count, len(found)) - 1][1]


def members(data: bytes, suffix: str) -> list[bytes]:
    """Return the bytes as a file with this suffix holds them: two halves in a .zip."""
    half = data.find(b"\n", len(data) // 2) + 1
    return [data[:half], data[half:]] if suffix == ".zip" else [data]


def packed(data: bytes, suffix: str) -> bytes:
    match suffix:
        case ".gz":
            return gzip.compress(data, 1, mtime=0)
        case ".xz":
            return lzma.compress(data, preset=0)
        case ".bz2":
            return bz2.compress(data, 1)
        case ".zst":
            return bytes(pa.compress(data, "zstd", asbytes=True))
        case ".zip":
            with io.BytesIO() as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                    for name, part in zip(("a.txt", "b/two.txt"), members(data, suffix), strict=True):
                        archive.writestr(zipfile.ZipInfo(name), part)
                return file.getvalue()
    return data
