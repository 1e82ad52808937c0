"""ARPA files of KenLM, SRILM and lmtool -> back-off tables.

Lines are read in blocks by compiled code; errors name the file and the line.
"""

from __future__ import annotations

import json
import logging
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.readers import read_blocks
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.data.word_table import WordTable
from lmtool.errors import UserError
from lmtool.language_model import LN10
from lmtool.ngram.counting.counts import MAX_ORDER
from lmtool.ngram.counting.radix_sort import sort_keys
from lmtool.ngram.files.arpa_lines import (
    CARRIAGE_RETURN,
    COMMENT,
    GOOD,
    LARGE,
    MESSAGES,
    NO_NUMBER,
    POSITIVE,
    ZERO,
    parse_lines,
)
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.trie import TrieBuilder, ngram_keys

log = logging.getLogger(__name__)

Array = npt.NDArray[Any]
OTHER_UNK = "<UNK>"  # as some tools write <unk>
REMEDY = "write the file again"
PIECE = 1 << 20  # n-grams read and looked up at once
SUM_SLACK = 0.01  # by which the 1-grams' probabilities, rounded in the file, may miss a sum of 1
SEPARATORS = re.compile("[ \t]+")  # no other white space of Unicode: words may have it
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|-inf")


@dataclass(frozen=True, slots=True)
class Arpa:
    """The content of an ARPA file, its words numbered in the order of the 1-grams.

    words: of the 1-grams. grams: for each order k, the numbers of its n-grams' words uint32 `[M, k]`, log-probabilities
    float32 `[M]` and log back-off weights float32 `[M]` in nats, and the line of the first n-gram. unseen, missing,
    normalised: as in BackoffTable.
    """

    path: str
    words: list[str]
    grams: list[tuple[Array, Array, Array, int]]
    unseen: float
    missing: float
    normalised: bool


class _Reader:
    """The lines of a file: one at a time, or as many as a block holds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0
        self._blocks: Iterator[bytes] = read_blocks(path)
        self.block = b""
        self.at = 0

    def more(self) -> bool:
        """Whether anything is left to read."""
        while self.at >= len(self.block):
            block = next(self._blocks, None)
            if block is None:
                return False
            self.block, self.at = block, 0
        return True

    def next(self) -> str:
        """The next line, without its end. Raises UserError where there is none."""
        if not self.more():
            raise self.cut_off()
        end = self.block.index(b"\n", self.at)
        line = self.block[self.at : end].decode()
        self.at = end + 1
        self.number += 1
        if line.endswith("\r"):
            raise self.error(MESSAGES[CARRIAGE_RETURN])
        return line

    def error(self, message: str, number: int | None = None) -> UserError:
        """The error of a line, by default the last one read."""
        return _error(self.path, number or self.number, message)

    def cut_off(self) -> UserError:
        """The error of a file that ends too early."""
        return UserError(f"{self.path} ends after line {self.number}: it is cut off; {REMEDY}")


def _error(path: str, line: int, message: str) -> UserError:
    return UserError(f"{path}, line {line}: {message}; {REMEDY}")


def read_arpa(path: str) -> Arpa:
    """Read an ARPA file, plain or compressed.

    Raises UserError, naming file and line, for a file that is cut off, whose counts are wrong, or that has a line which
    is not an n-gram of its section.
    """
    lines = _Reader(path)
    extra = _Extra()
    line = lines.next()
    while line.strip() != "\\data\\":
        if line.startswith(COMMENT):
            extra = _extra(line.removeprefix(COMMENT), lines)
        if lines.number > 1000 or not lines.more():
            raise UserError(f"{path} is not an ARPA file: there is no \\data\\ in its first {lines.number:,} lines")
        line = lines.next()
    sizes: list[int] = []
    while line := lines.next().strip():
        count = re.fullmatch(r"ngram\s+([0-9]{1,9})\s*=\s*([0-9]{1,18})", line)
        if not count or int(count[1]) != len(sizes) + 1:
            raise lines.error(f"should be ngram {len(sizes) + 1}=COUNT, or empty")
        sizes.append(int(count[2]))
    if not 1 <= len(sizes) <= MAX_ORDER:
        raise lines.error(f"the counts have {len(sizes)} orders; there must be 1 to {MAX_ORDER}")
    words: list[str] = []
    grams: list[tuple[Array, Array, Array, int]] = []
    table = WordTable()
    for k, size in enumerate(sizes, start=1):
        while not (line := lines.next().strip()):
            pass
        if line != f"\\{k}-grams:":
            raise lines.error(f"should be \\{k}-grams:, of which there are {size:,} by the counts")
        if k == 1:
            words, log_prob, log_backoff = _read_unigrams(lines, size)
            table = WordTable(words)
            grams.append((np.arange(size, dtype=np.uint32)[:, None], log_prob, log_backoff, lines.number - size + 1))
        else:
            grams.append(_read_section(lines, k, size, table))
        if lines.next().strip():
            raise lines.error(f"the {k}-grams should end here: there are {size:,} by the counts")
    while not (line := lines.next().strip()):
        pass
    if line != "\\end\\":
        raise lines.error("should be \\end\\")
    words = _marked(words, path)
    return Arpa(path, words, grams, extra.unseen, extra.missing, extra.normalised)


def _marked(words: list[str], path: str) -> list[str]:
    """The words with `<unk>` for `<UNK>`, as KenLM takes it.

    Raises UserError for marks in upper case, which KenLM refuses as missing, and SRILM reads as words.
    """
    if upper := [mark.upper() for mark in (BOS, EOS) if mark not in words and mark.upper() in words]:
        raise UserError(f"{path} has {' and '.join(upper)}, which are words like any other: write <s> and </s>")
    return words if UNK in words else [UNK if word == OTHER_UNK else word for word in words]


@dataclass(frozen=True, slots=True)
class _Extra:
    """What lmtool's comment adds to the format, by default that of other tools' files."""

    unseen: float = -math.inf
    missing: float = 0.0
    normalised: bool = True


def _extra(text: str, lines: _Reader) -> _Extra:
    """The values of lmtool's comment. Raises UserError where it is damaged."""
    try:
        values = json.loads(text)
        unseen = values.get("unseen")
        extra = _Extra(
            -math.inf if unseen is None else float(unseen),
            float(values.get("missing", 0.0)),
            bool(values.get("normalised", True)),
        )
        if not extra.unseen <= 0 or not abs(extra.missing) <= -ZERO * LN10:
            raise ValueError("unseen or missing is no logarithm")
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise lines.error(f"lmtool's comment is damaged ({error})") from error
    return extra


def _read_unigrams(lines: _Reader, size: int) -> tuple[list[str], Array, Array]:
    words: dict[str, int] = {}
    log_prob, log_backoff = array("d"), array("d")
    for i in range(size):
        line = lines.next()
        if not line.strip() or line.startswith("\\"):
            raise lines.error(f"the 1-grams end after {i:,}, but there are {size:,} by the counts")
        columns = [column for column in SEPARATORS.split(line) if column]
        if not 2 <= len(columns) <= 3:
            raise lines.error("should be log10 p, a word, and perhaps log10 backoff")
        p, word = _number(columns[0], lines), columns[1]
        if p > 0 and word != BOS:
            raise lines.error(MESSAGES[POSITIVE])
        backoff = _number(columns[2], lines) if len(columns) > 2 else 0.0
        if backoff > -ZERO:
            raise lines.error(MESSAGES[LARGE])
        if word in words:
            raise lines.error(f"{word!r} is also in line {words[word]}")
        words[word] = lines.number
        log_prob.append(p)
        log_backoff.append(backoff)
    return list(words), _natural(np.array(log_prob)), _natural(np.array(log_backoff))


def _number(text: str, lines: _Reader) -> float:
    """A decimal number, or -inf. Raises UserError for another text, of which Python's float would take some."""
    if not NUMBER.fullmatch(text):
        raise lines.error(MESSAGES[NO_NUMBER])
    return float(text)


def _read_section(lines: _Reader, k: int, size: int, table: WordTable) -> tuple[Array, Array, Array, int]:
    parts: list[tuple[Array, Array]] = []
    first = lines.number + 1
    done = 0
    while done < size:  # in pieces: the counts may promise more than the file has
        rows = min(PIECE, size - done)
        words, values = np.empty((rows, k), dtype=np.uint32), np.zeros((2, rows), dtype=np.float32)
        _read_rows(lines, words, values, table, f"the {k}-grams end after", done, size)
        parts.append((words, values))
        done += rows
    if not parts:
        return np.empty((0, k), dtype=np.uint32), np.empty(0, np.float32), np.empty(0, np.float32), first
    values = np.concatenate([part for _, part in parts], axis=1)
    return np.concatenate([part for part, _ in parts]), values[0], values[1], first


def _read_rows(
    lines: _Reader, words: Array, values: Array, table: WordTable, ends: str, before: int, size: int
) -> None:
    """Fill words `[M, k]` and values `[2, M]`. ends, before, size: for the error of a section that ends too early."""
    done = 0
    while done < len(words):
        if not lines.more():
            raise lines.cut_off()
        block = np.frombuffer(lines.block, dtype=np.uint8)
        at, read, error = parse_lines(
            block, lines.at, table.slots, table.starts, table.arena, words[done:], values[:, done:]
        )
        lines.number += int(read)
        done += int(read)
        lines.at = int(at)
        if error != GOOD:
            raise lines.error(MESSAGES[int(error)], lines.number + 1)
        if done < len(words) and lines.at < len(lines.block):
            lines.number += 1
            raise lines.error(f"{ends} {before + done:,}, but there are {size:,} by the counts")


def _natural(log10: Array) -> Array:
    natural: Array = np.where(log10 <= ZERO, -np.inf, log10 * LN10).astype(np.float32)
    return natural


def arpa_table(arpa: Arpa, vocabulary: Vocabulary) -> BackoffTable:
    """The table with the ids of a vocabulary that has all words of the file.

    Words of the vocabulary that are not in the file get probability 0. A file whose 1-grams do not sum to one gives
    scores, not probabilities. Raises UserError, naming the line, for a word that is not in the vocabulary, an
    n-gram that occurs twice, and one whose context is not an n-gram of the file.
    """
    size = len(vocabulary)
    ids = np.array([vocabulary.ids.get(word, -1) for word in arpa.words], dtype=np.int64)
    if BOS in arpa.words:
        ids[arpa.words.index(BOS)] = vocabulary.bos
    unknown = [i for i in np.flatnonzero(ids < 0).tolist() if arpa.words[i] != EOS or vocabulary.eos is not None]
    if unknown:
        word = arpa.words[unknown[0]]
        message = f"{word!r} is not in the vocabulary: choose a data set with the words of the file"
        raise UserError(f"{arpa.path}, line {arpa.grams[0][3] + unknown[0]}: {message}")
    log_prob = [np.full(size, -np.inf, dtype=np.float32)]
    log_backoff = [np.zeros(size, dtype=np.float32)]
    _, p, backoff, _ = arpa.grams[0]
    log_prob[0][ids[ids >= 0]] = p[ids >= 0]
    log_prob[0][vocabulary.bos] = -np.inf
    log_backoff[0][ids[ids >= 0]] = backoff[ids >= 0]
    total = float(np.exp(log_prob[0].astype(np.float64)).sum()) + math.exp(arpa.unseen)
    builder = TrieBuilder(size)
    suffix_closed = True
    for k, (words, p, backoff, first_line) in enumerate(arpa.grams[1:], start=2):
        trie = builder.finish()  # of the orders below
        key = np.empty(len(words), dtype=np.uint64)
        for at in range(0, len(words), PIECE):
            mapped = ids[words[at : at + PIECE]]  # [M, k]
            context = trie.find(mapped[:, :-1])
            if (context < 0).any():
                row = at + int((context < 0).argmax())
                shorter = " ".join(arpa.words[w] for w in words[row, :-1])
                raise _error(arpa.path, first_line + row, f"{shorter!r} is not among the {k - 1}-grams")
            if (mapped < 0).any():
                row = first_line + at + int((mapped < 0).any(axis=1).argmax())
                raise UserError(f"{arpa.path}, line {row}: {EOS} ends sentences: set data.sentences=true")
            suffix_closed = suffix_closed and bool((trie.find(mapped[:, 1:]) >= 0).all())
            context -= trie.first(k - 1)
            key[at : at + PIECE] = ngram_keys(context, mapped[:, -1], builder.word_width)
        key, order = sort_keys(key, np.arange(len(key), dtype=np.uint32), builder.key_width)
        twice = np.flatnonzero(key[1:] == key[:-1])
        if len(twice):
            one, other = first_line + int(order[twice[0]]), first_line + int(order[twice[0] + 1])
            raise _error(arpa.path, other, f"the same n-gram is also in line {one}")
        builder.add(key)
        log_prob.append(p[order])
        log_backoff.append(backoff[order])
    if missing := [mark for mark in (BOS, EOS) if mark not in arpa.words]:  # said when no error can follow
        meant = "its text is one stream without sentences" if EOS in missing else "a sentence begins without a context"
        log.warning("note: %s has no %s, which KenLM refuses: %s", arpa.path, " and no ".join(missing), meant)
    return BackoffTable(
        trie=builder.finish(),
        log_prob=np.concatenate(log_prob),
        log_backoff=np.concatenate(log_backoff[:-1]) if len(log_backoff) > 1 else np.empty(0, dtype=np.float32),
        bos=vocabulary.bos,
        unseen=arpa.unseen,
        missing=arpa.missing,
        normalised=arpa.normalised and abs(total - 1) <= SUM_SLACK,
        suffix_closed=suffix_closed,
    )
