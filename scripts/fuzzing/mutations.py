"""Bytes of a right file become those of a wrong one: edits that JSON can hold, of bytes, lines, fields and numbers."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zipfile
from typing import Any

from hypothesis import strategies as st

MOST = 1 << 20  # bytes of a text that edits may make
SUFFIXES = [".gz", ".xz", ".bz2", ".zst", ".zip"]
NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
FIELD = re.compile(rb"[^ \t\r\n]+")
PLACES = st.integers(0, 1 << 16)

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


@st.composite
def edits(draw: st.DrawFn, most: int = 3) -> list[list[Any]]:
    """Edits for `edited`, mostly one."""
    one = st.one_of(
        st.tuples(st.just("number"), PLACES, st.sampled_from(NUMBERS)),
        st.tuples(st.just("field"), PLACES, st.sampled_from(TOKENS + NUMBERS)),
        st.tuples(st.just("put"), PLACES, st.sampled_from(TOKENS)),
        st.tuples(st.just("drop"), PLACES, st.integers(1, 3)),
        st.tuples(st.just("double"), PLACES, st.integers(1, 3)),
        st.tuples(st.just("swap"), PLACES, PLACES),
        st.tuples(st.just("flip"), PLACES, st.integers(0, 7)),
        st.tuples(st.just("byte"), PLACES, st.integers(0, 255)),
        st.tuples(st.just("cut"), PLACES, st.just(0)),
        st.tuples(st.just("remove"), PLACES, st.integers(1, 40)),
        st.tuples(st.just("splice"), PLACES, PLACES),
        st.tuples(st.just("times"), st.sampled_from([2, 3, 40, 5000]), st.just(0)),
    )
    return [list(edit) for edit in draw(st.lists(one, max_size=most))]


def edited(data: bytes, changes: list[list[Any]]) -> bytes:
    """The bytes after edits; places are taken modulo what there is."""
    for kind, place, value in changes:
        at = place % (len(data) + 1)
        text = value.encode("latin-1", "replace") if isinstance(value, str) else b""
        match kind:
            case "number" | "field":
                found = list((NUMBER if kind == "number" else FIELD).finditer(data))
                if found:
                    start, end = found[place % len(found)].span()
                    data = data[:start] + text + data[end:]
            case "put":
                data = data[:at] + text + data[at:]
            case "drop" | "double" | "swap":
                data = _lines_edited(data, kind, place, value)
            case "flip" if data:
                at %= len(data)
                data = data[:at] + bytes([data[at] ^ (1 << value)]) + data[at + 1 :]
            case "byte" if data:
                at %= len(data)
                data = data[:at] + bytes([value]) + data[at + 1 :]
            case "cut":
                data = data[:at]
            case "remove":
                data = data[:at] + data[at + value :]
            case "splice":
                data = data[:at] + data[value % (len(data) + 1) :]
            case "times":
                data = data * min(place, max(1, MOST // max(1, len(data))))
    return data


def _lines_edited(data: bytes, kind: str, place: int, value: int) -> bytes:
    lines = data.split(b"\n")
    at = place % len(lines)
    match kind:
        case "drop":
            del lines[at : at + value]
        case "double":
            lines[at:at] = lines[at : at + value]
        case _:
            other = value % len(lines)
            lines[at], lines[other] = lines[other], lines[at]
    return b"\n".join(lines)


def packed(data: bytes, suffix: str) -> bytes:
    """The bytes as a file with this suffix has them."""
    match suffix:
        case ".gz":
            return gzip.compress(data, 1, mtime=0)
        case ".xz":
            return lzma.compress(data, preset=0)
        case ".bz2":
            return bz2.compress(data, 1)
        case ".zst":
            import pyarrow as pa

            return bytes(pa.compress(data, "zstd", asbytes=True))
        case ".zip":
            with io.BytesIO() as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                    half = data.find(b"\n", len(data) // 2) + 1
                    archive.writestr(zipfile.ZipInfo("b/two.txt"), data[half:])
                    archive.writestr(zipfile.ZipInfo("a.txt"), data[:half])
                return file.getvalue()
    return data
