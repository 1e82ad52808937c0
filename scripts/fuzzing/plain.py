"""Plain readers of other programs' files, to compare lmtool's with: short, slow, and to the letter of the formats.

Each raises ValueError for what it cannot read.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

LN10 = math.log(10)
WHITE = re.compile("[ \t-\r]+")
OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
DECIMAL = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
REFUSALS = (ValueError, EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)


def unpacked(raw: bytes, suffix: str) -> list[bytes]:
    """Return the contents of a file, several for a .zip. Raises ValueError if any of it is damaged."""
    try:
        match suffix:
            case ".gz":
                with gzip.open(io.BytesIO(raw)) as file:
                    return [file.read()]
            case ".xz":
                return [_streams(raw, lzma.LZMADecompressor, 4)]
            case ".bz2":
                return [_streams(raw, bz2.BZ2Decompressor, 0)]
            case ".zst":
                import pyarrow as pa

                return [bytes(pa.CompressedInputStream(io.BytesIO(raw), "zstd").read())]
            case ".zip":
                with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                    names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
                    return [archive.read(name) for name in names]
    except REFUSALS as error:
        raise ValueError(str(error)) from error
    return [raw]


def _streams(raw: bytes, stream: Callable[[], Any], padding: int) -> bytes:
    """Return all streams of a file. padding: zeros between them come in multiples of this; 0: none."""
    out = []
    while raw:
        one = stream()
        out.append(one.decompress(raw))
        if not one.eof:
            raise ValueError("cut off")
        raw = one.unused_data
        zeros = len(raw) - len(raw.lstrip(b"\0"))
        if padding and zeros % padding == 0:
            raw = raw[zeros:]
    return b"".join(out)


def text_of(contents: list[bytes]) -> str:
    """Return text: UTF-8 without other byte-order marks or NUL, and not only white space."""
    texts = []
    for content in contents:
        if content.startswith(OTHER_MARKS) or b"\0" in content:
            raise ValueError("not UTF-8 text")
        text = content.removeprefix(codecs.BOM_UTF8).decode()
        texts.append(text if not text or text.endswith("\n") else text + "\n")
    whole = "".join(texts)
    if not whole.strip(" \t\n\v\f\r"):
        raise ValueError("empty")
    return whole


def words_of(text: str, *, sentences: bool = True, tags: bool = False, lower: bool = False) -> list[str]:
    """Return the tokens of a text."""
    tokens = []
    for line in (text.lower() if lower else text).split("\n"):
        words = [word for word in WHITE.split(line) if word]
        words = [word.rpartition("/")[0] or word for word in words] if tags else words
        if "<s>" in words or "</s>" in words:
            raise ValueError("a mark in the text")
        tokens += [*words, "</s>"] if words and sentences else words
    return tokens


def characters_of(text: str, *, sentences: bool) -> list[str]:
    """Return the characters of a text."""
    text = text.replace("\r\n", "\n")
    if not sentences:
        return list(text)
    return [token for line in text.split("\n") if line for token in [*line, "</s>"]]


def documents_of(contents: list[bytes], column: str) -> str:
    """Return the text of JSON Lines."""
    texts = []
    for content in contents:
        for line in content.split(b"\n"):
            if line.strip():
                try:
                    document = json.loads(line)
                except RecursionError as error:
                    raise ValueError("too deep") from error
                text = document[column] if isinstance(document, dict) and column in document else 3
                if text is not None and not isinstance(text, str):
                    raise ValueError("no text")
                texts.append((text or "").replace("\r\n", "\n").removesuffix("\n") + "\n")
    whole = "".join(texts)
    if "\0" in whole or not whole.strip(" \t\n\v\f\r"):
        raise ValueError("NUL, or empty")
    whole.encode()
    return whole


def number_of(field: bytes) -> float:
    """Return a decimal number; of words only inf is accepted."""
    if field in (b"-inf", b"inf"):
        return float(field)
    if not DECIMAL.fullmatch(field):
        raise ValueError(f"{field!r} is not a number")
    return float(field)


class PlainArpa:
    """An ARPA file as dictionaries: log10 p and log10 back-off weight by n-gram, a tuple of words."""

    def __init__(self, content: bytes) -> None:
        self.log_prob: dict[tuple[bytes, ...], float] = {}
        self.log_backoff: dict[tuple[bytes, ...], float] = {}
        self.order = 0
        at, order, finished = 0, 0, False
        lines = content.split(b"\n")
        while lines[at].strip() != b"\\data\\":
            at += 1
        for line in lines[at + 1 :]:
            fields = line.strip(b" \t").replace(b"\t", b" ").split(b" ")
            fields = [field for field in fields if field]
            head = re.fullmatch(rb"\\(\d+)-grams:", line.strip())
            if head:
                order = self.order = int(head[1])
            elif line.strip() == b"\\end\\":
                finished = True
                break
            elif fields and order:
                ngram = tuple(fields[1 : order + 1])
                if len(ngram) != order or len(fields) > order + 2 or ngram in self.log_prob:
                    raise ValueError(f"not an n-gram, or a repeated one: {line!r}")
                self.log_prob[ngram] = number_of(fields[0])
                self.log_backoff[ngram] = number_of(fields[order + 1]) if len(fields) > order + 1 else 0.0
        if not finished:
            raise ValueError("cut off")

    def p(self, context: tuple[bytes, ...], word: bytes) -> float:
        """Return log10 p(word | context); -inf for 0, which the format writes as -99."""
        context = context[max(0, len(context) - self.order + 1) :]
        if (*context, word) in self.log_prob:
            value = self.log_prob[*context, word]
            return value if value > -99 else -math.inf
        if not context:
            return -math.inf
        weight = self.log_backoff.get(context, 0.0)
        return (weight if weight > -99 else -math.inf) + self.p(context[1:], word)


def counts_of(contents: list[bytes]) -> dict[tuple[str, ...], int]:
    """Return the counts of n-grams, from lines of words and a count."""
    found: dict[tuple[str, ...], int] = {}
    for line in text_of(contents).split("\n"):
        fields = [field for field in re.split("[ \t\r]+", line) if field]
        if not fields:
            continue
        *words, count = fields
        if not re.fullmatch(r"[0-9]+", count) or not words:
            raise ValueError(f"no count: {line!r}")
        found[tuple(words)] = found.get(tuple(words), 0) + int(count)
    return found


def kenlm_of(text: str) -> list[tuple[str, float]]:
    """Return words and ln p from KenLM's tab-separated `word=id length log10p`, among lines of a summary."""
    found = []
    for line in text.split("\n"):
        for field in line.removesuffix("\r").split("\t"):
            parts = field.rsplit(" ", 2)
            if len(parts) == 3 and " " not in parts[0] and parts[0].rpartition("=")[2].isdigit() and parts[1].isdigit():
                found.append((parts[0].rpartition("=")[0], number_of(parts[2].encode()) * LN10))
    return found


def srilm_of(text: str) -> list[tuple[str, float]]:
    """Return words and ln p from SRILM's `p( word | ... ) = ... [ log10p ]`."""
    found = []
    for line in text.split("\n"):
        if line.startswith("\tp( "):
            word = line.removeprefix("\tp( ").partition(" | ")[0]
            found.append((word, number_of(line.rpartition(" [ ")[2].partition(" ]")[0].encode()) * LN10))
    return found


def tsv_of(text: str) -> list[tuple[str, float]]:
    """Return words and ln p from the columns word and log10p."""
    first, *lines = [line.split("\t") for line in text.rstrip("\n").split("\n")]
    word, value = first.index("word"), first.index("log10p")
    return [(line[word], number_of(line[value].encode()) * LN10) for line in lines]


def nbest_of(text: str) -> list[tuple[str, str, float]]:
    """Return id, hypothesis and total of Moses' lists."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        fields = [field.strip(" \t\n\v\f\r") for field in line.split("|||")]
        found.append((fields[0], fields[1], number_of(fields[3].encode()) if len(fields) > 3 else 0.0))
    return found
