"""Plain readers of other programs' files, to compare lmtool's with: short, slow, and to the letter of the formats.

Those that end in `_of` take a Given and return what the function of this name in readings returns, or None if they have
no opinion. Each raises ValueError, KeyError or IndexError for what it cannot read.
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
from pathlib import Path
from typing import Any, NamedTuple

LN10 = math.log(10)
WHITE, WORD = re.compile("[ \t-\r]+"), re.compile("[^ \t-\r]+")
OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
DECIMAL = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
SMALL = ("the", "cat", "</s>", "a", "sat", "dog", "on", "mat", "ran", "ünï", "<unk>", "<s>")  # all words of the cases
MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\0", ".bz2": b"BZh91AY&SY", ".zst": b"\x28\xb5\x2f\xfd"}
REFUSALS = (ValueError, EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)


class Given(NamedTuple):
    """A file to read, and settings of whoever reads it. suffix: of its packing."""

    path: Path
    raw: bytes
    suffix: str
    lower: bool = False
    sentences: bool = False
    tags: bool = False
    chars: bool = False

    @property
    def contents(self) -> list[bytes]:
        """Its unpacked contents, with LF for CR where there is no LF. Raises ValueError if it is damaged."""
        contents = unpacked(self.raw, self.suffix)
        return [each if b"\n" in each else each.removesuffix(b"\r").replace(b"\r", b"\n") for each in contents]

    @property
    def lines(self) -> list[str]:
        """Its lines of text, with LF for CR LF. Raises ValueError if it is not text."""
        return whole_text(self.contents).replace("\r\n", "\n").removesuffix("\n").split("\n")


def unpacked(raw: bytes, suffix: str) -> list[bytes]:
    """Return the contents of a file, several for a .zip. Raises ValueError if any of it is damaged."""
    if suffix in MAGIC:  # as its first bytes say; plain text may be named .gz
        packed = next((kind for kind, first in MAGIC.items() if raw.startswith(first)), None)
        suffix = packed or ("" if _is_text(raw[:256]) else suffix)
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


def _is_text(head: bytes) -> bool:
    """Return whether bytes are UTF-8 without NUL; the last letter may be cut."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


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


def whole_text(contents: list[bytes]) -> str:
    """Return text: UTF-8 without other byte-order marks or NUL, and not only white space."""
    texts = []
    for content in contents:
        if content.startswith(OTHER_MARKS) or b"\0" in content:
            raise ValueError("not UTF-8 text")
        text = re.sub("(?m)^\ufeff+", "", content.decode())
        texts.append(text if not text or text.endswith("\n") else text + "\n")
    whole = "".join(texts)
    if not whole.strip(" \t\n\v\f\r"):
        raise ValueError("empty")
    return whole


def words_in(line: str) -> list[str]:
    """Return the words of a line."""
    return [word for word in WHITE.split(line) if word]


def text_of(given: Given) -> list[str]:
    """Return the tokens or characters of a text."""
    text = whole_text(given.contents)
    text = text.lower() if given.lower else text
    if given.chars:
        text = text.replace("\r\n", "\n")
        if given.tags:
            text = WORD.sub(lambda word: word[0].rpartition("/")[0] or word[0], text)
        lines = [line for line in text.split("\n") if words_in(line)]
        return [token for line in lines for token in [*line, "</s>"]] if given.sentences else list(text)
    tokens = []
    for line in text.split("\n"):
        words = [word.rpartition("/")[0] or word if given.tags else word for word in words_in(line)]
        if "<s>" in words or "</s>" in words:
            raise ValueError("a mark in the text")
        tokens += [*words, "</s>"] if words and given.sentences else words
    return tokens


def scored_of(given: Given) -> list[str] | None:
    """Return the words of the lines of a text, those that are unknown as <unk>."""
    if given.chars or ".json" in given.path.name:
        return None
    text = "".join(whole_text([content]) if content.strip() else "" for content in given.contents)
    lines = [words_in(line) for line in (text.lower() if given.lower else text).split("\n")]
    if any("</s>" in line for line in lines):
        return None
    tokens = [word for line in lines if line for word in [*line, "</s>"]]
    return [word if word in SMALL[:-1] else "<unk>" for word in tokens]


def documents_of(given: Given) -> str:
    """Return the text of JSON Lines."""
    texts = []
    for line in b"\n".join(given.contents).split(b"\n"):
        if line.strip():
            try:
                document = json.loads(line)
            except RecursionError as error:
                raise ValueError("too deep") from error
            text = document["text"] if isinstance(document, dict) and "text" in document else 3
            if text is not None and not isinstance(text, str):
                raise ValueError("no text")
            texts.append((text or "").replace("\r\n", "\n").removesuffix("\n") + "\n")
    whole = "".join(texts)
    if "\0" in whole or not whole.strip(" \t\n\v\f\r"):
        raise ValueError("NUL, or empty")
    whole.encode()
    return whole


def word_list_of(given: Given) -> list[str]:
    """Return the words of a list, whose lines may be numbered."""
    lines = [line for line in map(words_in, given.lines) if line]
    numbered = [line[0] for line in lines if len(line) > 1] == [str(k + 1) for k in range(len(lines))]
    column = 1 if numbered and any(not line[1].isdigit() for line in lines) else 0
    words = [line[column].lower() if given.lower else line[column] for line in lines]
    if len(set(words)) < len(words):
        raise ValueError("a word twice")
    return words


def _ids(words: list[str]) -> list[int]:
    return [SMALL.index(word if word in SMALL else "<unk>") for word in words]


def questions_of(given: Given) -> tuple[list[list[int]], list[int]]:
    """Return the candidates and the contexts of pairs of lines, `Q word ...` and `C word ... word`."""
    lines = [words_in(line.lower() if given.lower else line) for line in given.lines]
    return [_ids(line[1:]) for line in lines[::2]], _ids([word for line in lines[1::2] for word in line[1:-1]])


def answers_of(given: Given) -> list[int]:
    """Return the column with a 1 in each line after the first."""
    return [line.split(",")[1:].index("1") for line in given.lines[1:]]


def references_of(given: Given) -> list[str] | None:
    """Return the lines of the right lists' ids, 0 and 1."""
    return given.lines[:2] if given.lower else None


def _fields(given: Given) -> list[list[str]]:
    """Return the fields of the lines of a file that is not packed."""
    lines = given.raw.removeprefix(codecs.BOM_UTF8).splitlines()
    return [[field.decode() for field in line.split()] for line in lines if line.strip()]


def tree_of(given: Given) -> list[tuple[str, str]]:
    """Return the words and codes of lines."""
    return sorted((line[0], line[1]) for line in _fields(given))


def own_classes_of(given: Given) -> dict[str, str]:
    """Return the name of each known word's class, of lines `word class` or SRILM's `class p word`."""
    pairs = [(line[0], line[1]) if len(line) == 2 else (line[2], line[0]) for line in _fields(given)]
    return {word: name for word, name in pairs if word in SMALL}


def vocabulary_file_of(given: Given) -> list[tuple[str, str]] | None:
    """Return words and counts separated by tabs."""
    lines = given.raw.decode().removesuffix("\n").split("\n")
    pairs = [(line.partition("\t")[0], line.partition("\t")[2]) for line in lines]
    return None if any("\\" in word for word, _ in pairs) else pairs


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


def counts_of(given: Given) -> dict[tuple[str, ...], int]:
    """Return the counts of n-grams up to order 4, from lines of words and a count."""
    found: dict[tuple[str, ...], int] = {}
    for line in whole_text(given.contents).split("\n"):
        *words, count = [field for field in re.split("[ \t\r]+", line) if field] or [""]
        if (words or count) and (not re.fullmatch(r"[0-9]+", count) or not words):
            raise ValueError(f"no count: {line!r}")
        if words and len(words) < 5:
            found[tuple(words)] = found.get(tuple(words), 0) + int(count)
    return found


def scores_of(given: Given) -> list[tuple[str, float]] | None:
    """Return the words and ln p, at most 0, of KenLM, of SRILM or of a TSV."""
    first = given.lines[0].split("\t")
    if any(line.startswith("\tp( ") for line in given.lines[:1000]):
        rows = _srilm(given.lines)
    elif "=" in first[0]:
        rows = _kenlm(given.lines)
    elif "word" in first and "log10p" in first:
        cells = [line.split("\t") for line in "\n".join(given.lines).rstrip("\n").split("\n")[1:]]
        rows = [(line[first.index("word")], line[first.index("log10p")]) for line in cells]
    else:
        return None  # another of the names of a column
    return [(word, min(0.0, number_of(value.encode()) * LN10)) for word, value in rows]


def _kenlm(lines: list[str]) -> list[tuple[str, str]]:
    """Return words and values from tab-separated `word=id length log10p`, among lines of a summary."""
    found = []
    for field in (field for line in lines for field in line.removesuffix("\r").split("\t")):
        parts = field.rsplit(" ", 2)
        if len(parts) == 3 and " " not in parts[0] and parts[0].rpartition("=")[2].isdigit() and parts[1].isdigit():
            found.append((parts[0].rpartition("=")[0], parts[2]))
    return found


def _srilm(lines: list[str]) -> list[tuple[str, str]]:
    """Return words and values from `p( word | ... ) = ... [ log10p ]`."""
    lines = [line.removeprefix("\tp( ") for line in lines if line.startswith("\tp( ")]
    return [(line.partition(" | ")[0], line.rpartition(" [ ")[2].partition(" ]")[0]) for line in lines]


def nbest_of(given: Given) -> list[tuple[str, str, float]] | None:
    """Return id, hypothesis and total of Moses' lists; None for Kaldi's."""
    if given.path.name.startswith("costs") or "|||" not in given.lines[0]:
        return None
    rows = [[field.strip(" \t\n\v\f\r") for field in line.split("|||")] for line in given.lines]
    return [(row[0], row[1], number_of(row[3].encode()) if len(row) > 3 else 0.0) for row in rows]
