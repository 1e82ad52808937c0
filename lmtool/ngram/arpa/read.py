"""ARPA files, as KenLM, SRILM and lmtool write them, become back-off tables.

Lines are read in blocks by compiled code; where one is not as it should be, it says which.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.readers import read_blocks
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.arpa.lines import CARRIAGE_RETURN, GOOD, NO_NUMBER, NOTHING, POSITIVE, WRONG, WordTable, parse_lines
from lmtool.ngram.arpa.write import COMMENT
from lmtool.ngram.counts import MAX_ORDER
from lmtool.ngram.sorting import sort_keys
from lmtool.ngram.table import BackoffTable
from lmtool.ngram.trie import TrieBuilder

Array = npt.NDArray[Any]
REMEDY = "write the file again"
PIECE = 1 << 20  # n-grams looked up at once


@dataclass(frozen=True, slots=True)
class Arpa:
    """What an ARPA file says, its words numbered by their lines.

    words: of the unigrams, in the order of the file. grams: for each order the numbers of its n-grams' words
    `[M, k]`, natural log-probabilities `[M]`, natural log back-off weights `[M]` and the line of each section's first.
    """

    path: str
    words: list[str]
    grams: list[tuple[Array, Array, Array, int]]
    unseen: float
    missing: float
    normalised: bool


class _Lines:
    """The lines of a file: one at a time, or as many as a block holds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0
        self._blocks: Iterator[bytes] = read_blocks(path)
        self.block = b""
        self.at = 0

    def more(self) -> bool:
        """Whether there is anything left to read."""
        while self.at >= len(self.block):
            found = next(self._blocks, None)
            if found is None:
                return False
            self.block, self.at = found, 0
        return True

    def next(self) -> str:
        """The next line, without its end."""
        if not self.more():
            raise UserError(f"{self.path} ends after line {self.number}: it is cut off; {REMEDY}")
        end = self.block.index(b"\n", self.at)
        line = self.block[self.at : end].decode()
        self.at = end + 1
        self.number += 1
        if line.endswith("\r"):
            raise self.wrong(WRONG[CARRIAGE_RETURN])
        return line

    def wrong(self, what: str, number: int | None = None) -> UserError:
        """The error of a line."""
        return UserError(f"{self.path}, line {number or self.number}: {what}; {REMEDY}")


def read_arpa(path: str) -> Arpa:
    """Read an ARPA file, plain or compressed.

    Raises UserError, naming file and line, for a file that is cut off, lies about its counts, or has a line that is no
    n-gram of its section.
    """
    lines = _Lines(path)
    more: dict[str, Any] = {}
    line = lines.next()
    while line.strip() != "\\data\\":
        if line.startswith(COMMENT):
            more = json.loads(line.removeprefix(COMMENT))
        elif lines.number > 1000:
            raise lines.wrong("no \\data\\ up to here: this is no ARPA file")
        line = lines.next()
    sizes: list[int] = []
    while line := lines.next().strip():
        told = re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", line)
        if not told or int(told[1]) != len(sizes) + 1:
            raise lines.wrong(f"should be ngram {len(sizes) + 1}=COUNT, or empty")
        sizes.append(int(told[2]))
    if not 1 <= len(sizes) <= MAX_ORDER:
        raise lines.wrong(f"tells of {len(sizes)} orders; there must be 1 to {MAX_ORDER}")
    words: list[str] = []
    grams: list[tuple[Array, Array, Array, int]] = []
    table = WordTable()
    for k, size in enumerate(sizes, start=1):
        while not (line := lines.next().strip()):
            pass
        if line != f"\\{k}-grams:":
            raise lines.wrong(f"should be \\{k}-grams:, of which line {k + 1} of the counts tells {size:,}")
        if k == 1:
            words, log_prob, log_backoff = _read_unigrams(lines, size)
            table = WordTable(words)
            grams.append((np.arange(size, dtype=np.uint32)[:, None], log_prob, log_backoff, lines.number - size + 1))
        else:
            grams.append(_read_section(lines, k, size, table))
        if lines.next().strip():
            raise lines.wrong(f"the {k}-grams should end here, the counts tell of {size:,}")
    while not (line := lines.next().strip()):
        pass
    if line != "\\end\\":
        raise lines.wrong("should be \\end\\")
    unseen = more.get("unseen")
    return Arpa(
        path,
        words,
        grams,
        -math.inf if unseen is None else float(unseen),
        float(more.get("missing", 0.0)),
        bool(more.get("normalised", True)),
    )


def _read_unigrams(lines: _Lines, size: int) -> tuple[list[str], Array, Array]:
    words: dict[str, int] = {}
    log_prob, log_backoff = np.empty(size), np.zeros(size)
    for i in range(size):
        line = lines.next()
        if not line.strip() or line.startswith("\\"):
            raise lines.wrong(f"the 1-grams end after {i:,}, the counts tell of {size:,}")
        columns = line.split()
        if not 2 <= len(columns) <= 3:
            raise lines.wrong("should be log10 p, a word, and perhaps log10 backoff")
        try:
            log_prob[i], log_backoff[i] = float(columns[0]), float(columns[2]) if len(columns) > 2 else 0.0
        except ValueError:
            raise lines.wrong(WRONG[NO_NUMBER]) from None
        if math.isnan(log_prob[i]) or math.isnan(log_backoff[i]):
            raise lines.wrong(WRONG[NO_NUMBER])
        if log_prob[i] > 0 and columns[1] != BOS:
            raise lines.wrong(WRONG[POSITIVE])
        if columns[1] in words:
            raise lines.wrong(f"{columns[1]!r} stands in line {words[columns[1]]} already")
        words[columns[1]] = lines.number
    return list(words), _natural(log_prob), _natural(log_backoff)


def _read_section(lines: _Lines, k: int, size: int, table: WordTable) -> tuple[Array, Array, Array, int]:
    words = np.empty((size, k), dtype=np.uint32)
    values = np.zeros((2, size), dtype=np.float32)
    first = lines.number + 1
    done = 0
    while done < size:
        if not lines.more():
            raise UserError(f"{lines.path} ends after line {lines.number}: it is cut off; {REMEDY}")
        block = np.frombuffer(lines.block, dtype=np.uint8)
        at, read, wrong = parse_lines(
            block, lines.at, table.slots, table.starts, table.arena, words[done:], values[:, done:]
        )
        lines.number += int(read)
        done += int(read)
        lines.at = int(at)
        if wrong != GOOD:
            raise lines.wrong(WRONG[int(wrong)], lines.number + 1)
        if done < size and lines.at < len(lines.block):
            lines.number += 1
            raise lines.wrong(f"the {k}-grams end after {done:,}, the counts tell of {size:,}")
    return words, values[0], values[1], first


def _natural(log10: Array) -> Array:
    found: Array = np.where(log10 <= NOTHING, -np.inf, log10 * math.log(10)).astype(np.float32)
    return found


def arpa_table(arpa: Arpa, vocabulary: Vocabulary) -> BackoffTable:
    """The table in the ids of a vocabulary that has all words of the file.

    A word of the vocabulary that the file does not have gets the probability 0. Raises UserError, naming the
    line, for an n-gram that stands twice and for one whose first words are no n-gram of the file.
    """
    size = len(vocabulary)
    ids = np.array([vocabulary.ids.get(word, -1) for word in arpa.words], dtype=np.int64)
    if BOS in arpa.words:
        ids[arpa.words.index(BOS)] = vocabulary.bos
    assert (ids[[word != EOS or vocabulary.eos is not None for word in arpa.words]] >= 0).all()
    log_prob = [np.full(size, -np.inf, dtype=np.float32)]
    log_backoff = [np.zeros(size, dtype=np.float32)]
    _, p, backoff, _ = arpa.grams[0]
    log_prob[0][ids[ids >= 0]] = p[ids >= 0]
    log_prob[0][vocabulary.bos] = -np.inf
    log_backoff[0][ids[ids >= 0]] = backoff[ids >= 0]
    builder = TrieBuilder(size)
    suffix_closed = True
    for k, (words, p, backoff, first_line) in enumerate(arpa.grams[1:], start=2):
        trie = builder.done()  # of the orders below
        key = np.empty(len(words), dtype=np.uint64)
        for at in range(0, len(words), PIECE):
            mapped = ids[words[at : at + PIECE]]  # [M, k]
            context = trie.find(mapped[:, :-1])
            if (context < 0).any():
                where = at + int((context < 0).argmax())
                told = " ".join(arpa.words[w] for w in words[where, :-1])
                what = f"{told!r} is not among the {k - 1}-grams"
                raise UserError(f"{arpa.path}, line {first_line + where}: {what}; {REMEDY}")
            suffix_closed = suffix_closed and bool((trie.find(mapped[:, 1:]) >= 0).all())
            context -= trie.first(k - 1)
            key[at : at + PIECE] = (context.astype(np.uint64) << np.uint64(builder.word_width)) | mapped[:, -1].astype(
                np.uint64
            )
        key, order = sort_keys(key, np.arange(len(key), dtype=np.uint32), builder.key_width)
        twice = np.flatnonzero(key[1:] == key[:-1])
        if len(twice):
            one, other = first_line + int(order[twice[0]]), first_line + int(order[twice[0] + 1])
            raise UserError(f"{arpa.path}, line {other}: the same n-gram stands in line {one} already; {REMEDY}")
        builder.add(key)
        log_prob.append(p[order])
        log_backoff.append(backoff[order])
    return BackoffTable(
        trie=builder.done(),
        log_prob=np.concatenate(log_prob),
        log_backoff=np.concatenate(log_backoff[:-1]) if len(log_backoff) > 1 else np.empty(0, dtype=np.float32),
        bos=vocabulary.bos,
        unseen=arpa.unseen,
        missing=arpa.missing,
        normalised=arpa.normalised,
        suffix_closed=suffix_closed,
    )


def words_of_file(arpa: Arpa) -> set[str]:
    """The words that the file can predict, but for `<unk>`."""
    return set(arpa.words) - {BOS, EOS, UNK}
