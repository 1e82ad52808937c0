"""Reading ARPA files of KenLM, SRILM and lmtool. Compiled code parses blocks of lines; errors name file and line."""

from __future__ import annotations

import json
import logging
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.data.readers import read_blocks
from lmtool.data.vocabulary import BOS, EOS, UNK
from lmtool.data.word_table import WordTable, find_word
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import MAX_ORDER
from lmtool.system.arrays import LN10, Array

log = logging.getLogger(__name__)
ZERO = -99.0  # the format's log10 of 0
COMMENT = "# lmtool "  # before the JSON of values for which the format has no place

# Errors in a line that the parser finds.
GOOD, NO_NUMBER, FEW_WORDS, MANY_WORDS, UNKNOWN_WORD, POSITIVE, LARGE = range(7)
MESSAGES = {
    NO_NUMBER: "should begin with log10 p, a number",
    FEW_WORDS: "has fewer words than the n-grams of its section",
    MANY_WORDS: "has more than its words and one number after them",
    UNKNOWN_WORD: "has a word that is not among the 1-grams",
    POSITIVE: "has a positive log10 p, but no probability is above 1",
    LARGE: "has a log10 back-off weight above 99, which is not a weight",
}
COMMA = "has a decimal comma: write numbers with a point"
OTHER_UNK = "<UNK>"  # some tools write it for <unk>
NGRAMS_PER_PIECE = 1 << 20  # n-grams read at once
SEPARATORS = re.compile("[ \t]+")  # other white space of Unicode may be part of words
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|-(?i:inf)")
DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Arpa:
    """The content of an ARPA file, with words numbered in the order of the 1-grams.

    words: the words of the 1-grams.
    grams: for each order k, the numbers of its n-grams' words uint32 `[M, k]`, log-probabilities float32 `[M]` and log
    back-off weights float32 `[M]` in nats.
    begins: the line after each order's title.
    blank: the blank lines, ascending.
    unseen: as in BackoffTable.
    sentences: whether its text consists of sentences; None if the file does not say.
    """

    path: str
    words: list[str]
    grams: list[tuple[Array, Array, Array]]
    begins: list[int]
    blank: list[int]
    unseen: float
    sentences: bool | None = None

    def line(self, k: int, row: int) -> int:
        line = self.begins[k - 1] + row
        for blank in self.blank:
            line += self.begins[k - 1] <= blank <= line
        return line


class _Reader:
    """Reads the lines of a file one at a time, or a block of them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0
        self._blocks: Iterator[bytes] = read_blocks(path, tables=True)
        self.block, self.at = b"", 0
        self.blank: list[int] = []

    def more(self) -> bool:
        while self.at >= len(self.block):
            block = next(self._blocks, None)
            if block is None:
                return False
            self.block, self.at = block, 0
        return True

    def next(self) -> str:
        """Return the next line, without LF or CR LF."""
        if not self.more():
            raise self.cut_off()
        end = self.block.index(b"\n", self.at)
        line = self.block[self.at : end].decode()
        self.at = end + 1
        self.number += 1
        self.blank += [] if line.strip() else [self.number]
        return line.removesuffix("\r")

    def next_text(self) -> str:
        """Return the next line that is not blank, without white space around it."""
        while not (line := self.next().strip()):
            pass
        return line

    def error(self, message: str) -> UserError:
        """Return the error of the last line read."""
        return line_error(self.path, self.number, message)

    def cut_off(self) -> UserError:
        """Return the error of a file that ends too early."""
        return UserError(f"{self.path} ends after line {self.number}: it is cut off; copy or download it again")


def line_error(path: str, line: int, message: str) -> UserError:
    return UserError(f"{path}, line {line}: {message}; correct the file there, or copy it again")


def read_arpa(path: str) -> Arpa:
    """Read an ARPA file, plain or compressed."""
    lines = _Reader(path)
    comment: tuple[float, bool | None] = -math.inf, None  # unless lmtool's says otherwise
    line = lines.next()
    while line.strip() != "\\data\\":
        if line.startswith(COMMENT):
            comment = _read_comment(line.removeprefix(COMMENT), lines)
        if lines.number > 1000 or not lines.more():
            raise UserError(f"{path} is not an ARPA file: there is no \\data\\ in its first {lines.number:,} lines")
        line = lines.next()
    sizes: list[int] = []
    while not (line := lines.next_text()).startswith("\\"):
        count = re.fullmatch(r"ngram\s+([0-9]{1,9})\s*=\s*([0-9]{1,18})", line)
        if not count or int(count[1]) != len(sizes) + 1:
            raise lines.error(f"should be ngram {len(sizes) + 1}=COUNT, or the 1-grams")
        sizes.append(int(count[2]))
    if not 1 <= len(sizes) <= MAX_ORDER:
        raise lines.error(f"the counts have {len(sizes)} orders; there must be 1 to {MAX_ORDER}")
    words, begins, table = list[str](), list[int](), WordTable()
    grams: list[tuple[Array, Array, Array]] = []
    for k, size in enumerate(sizes, start=1):
        if line != f"\\{k}-grams:":
            raise lines.error(f"should be \\{k}-grams:, of which there are {size:,} by the counts")
        begins.append(lines.number + 1)
        if k == 1:
            words, log_prob, log_backoff = _read_unigrams(lines, size)
            table = WordTable(words)
            grams.append((np.arange(size, dtype=np.uint32)[:, None], log_prob, log_backoff))
        else:
            grams.append(_read_section(lines, k, size, table))
        if not (line := lines.next_text()).startswith("\\"):
            raise lines.error(f"the {k}-grams should end here: there are {size:,} by the counts")
    if line != "\\end\\":
        raise lines.error("should be \\end\\")
    if grams[-1][2].any():
        log.warning("note: %s has back-off weights at its %d-grams: longer n-grams were cut off", path, len(sizes))
    return Arpa(path, _rename_unk(words, path), grams, begins, lines.blank, *comment)


def _rename_unk(words: list[str], path: str) -> list[str]:
    """Return the words with `<unk>` for `<UNK>`, as KenLM reads it."""
    if upper := [mark.upper() for mark in (BOS, EOS) if mark not in words and mark.upper() in words]:
        raise UserError(f"{path} has {' and '.join(upper)}, which are words like any other: write <s> and </s>")
    return words if UNK in words else [UNK if word == OTHER_UNK else word for word in words]


def _read_comment(text: str, lines: _Reader) -> tuple[float, bool | None]:
    """Return `unseen` and `sentences` from lmtool's comment."""
    try:
        values = json.loads(text)
        unseen = -math.inf if values.get("unseen") is None else float(values["unseen"])
        if not unseen <= 0:
            raise ValueError("unseen is not a log-probability")
        return unseen, values.get("sentences")
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise lines.error(f"lmtool's comment is damaged ({error})") from error


def _read_unigrams(lines: _Reader, size: int) -> tuple[list[str], Array, Array]:
    words: dict[str, int] = {}
    log_prob, log_backoff = array("d"), array("d")
    for i in range(size):
        line = lines.next_text()
        if line.startswith("\\"):
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
    return list(words), _natural_logs(np.array(log_prob)), _natural_logs(np.array(log_backoff))


def _number(text: str, lines: _Reader) -> float:
    """Return a decimal number or -inf."""
    if not NUMBER.fullmatch(text):
        raise lines.error(COMMA if DECIMAL_COMMA.fullmatch(text) else MESSAGES[NO_NUMBER])
    return float(text)


def _read_section(lines: _Reader, k: int, size: int, table: WordTable) -> tuple[Array, Array, Array]:
    words, values = np.empty((0, k), dtype=np.uint32), np.empty((2, 0), dtype=np.float32)
    done = 0
    while done < size:
        if not lines.more():
            raise lines.cut_off()
        if done == len(words):  # the counts may promise more than the file has
            longer = min(max(2 * done, NGRAMS_PER_PIECE), size)
            words, values = np.resize(words, (longer, k)), np.pad(values, ((0, 0), (0, longer - done)))
        block = np.frombuffer(lines.block, dtype=np.uint8)
        at, read, error = parse_lines(
            block, lines.at, table.slots, table.starts, table.arena, words[done:], values[:, done:]
        )
        lines.number += int(read)
        done += int(read)
        lines.at = int(at)
        if error != GOOD:
            comma = any(map(DECIMAL_COMMA.fullmatch, lines.next().split()[:: k + 1]))  # p or the weight
            raise lines.error(COMMA if comma and error in (NO_NUMBER, MANY_WORDS) else MESSAGES[int(error)])
        if done < len(words) and lines.at < len(lines.block) and lines.next().strip():  # it begins with a backslash
            raise lines.error(f"the {k}-grams end after {done:,}, but there are {size:,} by the counts")
    return words, values[0], values[1]


def _natural_logs(log10: Array) -> Array:
    natural: Array = np.where(log10 <= ZERO, -np.inf, log10 * LN10).astype(np.float32)
    return natural


@numba.njit(cache=True, nogil=True)
def _parse_number(block: Any, first: int, last: int) -> Any:
    """Return the decimal number in bytes `first` to before `last`, NaN if it is not one."""
    at = first
    negative = False
    if at < last and (block[at] == 45 or block[at] == 43):
        negative = block[at] == 45
        at += 1
    if last - at == 3 and block[at] | 32 == 105 and block[at + 1] | 32 == 110 and block[at + 2] | 32 == 102:  # inf, Inf
        return -np.inf if negative else np.inf
    value, scale, digits = 0.0, 0, 0
    point = False
    while at < last and (48 <= block[at] <= 57 or (block[at] == 46 and not point)):
        if block[at] == 46:
            point = True
        else:
            value = value * 10.0 + (block[at] - 48)
            digits += 1
            scale -= 1 if point else 0
        at += 1
    if digits == 0:
        return np.nan
    if at < last and (block[at] == 101 or block[at] == 69):  # e, E
        at += 1
        down = False
        if at < last and (block[at] == 45 or block[at] == 43):
            down = block[at] == 45
            at += 1
        exponent = 0
        if at == last:
            return np.nan
        while at < last and 48 <= block[at] <= 57:
            exponent = min(exponent * 10 + (block[at] - 48), 1000)
            at += 1
        scale += -exponent if down else exponent
    if at != last:
        return np.nan
    value = value / 10.0**-scale if scale < 0 else value * 10.0**scale
    return -value if negative else value


@numba.njit(cache=True, nogil=True)
def parse_lines(
    block: Any, at: int, slots: Any, starts: Any, arena: Any, words: Any, values: Any
) -> tuple[Any, Any, Any]:
    """Read lines into words `[M, k]` and values `[2, M]`, log p and log back-off weight in nats. Ends: LF, CR LF.

    Stops at a blank line, at a line that begins with a backslash or is wrong, after M lines, and at the block's end.

    Returns the position after the last line read, the number of lines read, and the error of the next one, or GOOD.
    """
    size, k = words.shape
    row = 0
    while row < size and at < len(block):
        end = at
        while block[end] != 10:
            end += 1
        after = end + 1
        if end > at and block[end - 1] == 13:
            end -= 1
        if end == at or block[at] == 92:  # an empty line, or a backslash
            return at, row, GOOD
        column = 0
        first = at
        while first < end:
            last = first
            while last < end and block[last] != 9 and block[last] != 32:
                last += 1
            if last > first:
                if column == 0 or column == k + 1:
                    value = _parse_number(block, first, last)
                    if np.isnan(value) or np.isposinf(value):
                        return at, row, NO_NUMBER if column == 0 else MANY_WORDS
                    if column == 0 and value > 0:
                        return at, row, POSITIVE
                    if value > -ZERO:
                        return at, row, LARGE
                    values[1 if column else 0, row] = value * LN10 if value > ZERO else -np.inf
                elif column > k + 1:
                    return at, row, MANY_WORDS
                else:
                    word = find_word(block, first, last, slots, starts, arena)
                    if word < 0:
                        return at, row, UNKNOWN_WORD
                    words[row, column - 1] = word
                column += 1
            first = last + 1
        if column < k + 1:
            return at, row, FEW_WORDS if column else GOOD
        row += 1
        at = after
    return at, row, GOOD
