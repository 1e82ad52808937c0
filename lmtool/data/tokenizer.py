"""Cut text into tokens, words at ASCII white space or characters, and number them.

A tokenizer is used in one of two ways. Without a vocabulary, it numbers types in the order of their first occurrence,
in one pass of bounded memory; which types are kept, and in what order, is decided later from the counts. With a
vocabulary, it returns the ids of its words, in parallel, and OOV for other words. `split_words` is the plain form, for
short strings.
"""

from __future__ import annotations

import itertools
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.config.data import Unit
from lmtool.data.text_rules import UNCHANGED, TextRules, graphemes
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.data.word_table import WORD, WordTable, entry, find_slot, hash_bytes
from lmtool.errors import RecordError
from lmtool.system.arrays import IntArray
from lmtool.system.parallel import run, threads

Ids = npt.NDArray[np.int32]

# The words that every vocabulary has; `<s>` and `</s>` are not allowed in the text.
RESERVED = (EOS, UNK, BOS)
EOS_ID, UNK_ID, BOS_ID = 0, 1, 2
OOV = -1
REFUSED = -2  # instead of the id of `<s>` and `</s>` in the text
NEWLINE, SLASH = 10, 47
WHITE = re.compile(r"[ \t-\r]+")  # ASCII white space, the same as in `is_space`
TAG = re.compile(r"(?<=[^ \t-\r])/[^/ \t-\r]*(?![^ \t-\r])")  # tag of a word, unless nothing precedes it
MIN_BYTES_PER_THREAD = 1 << 16


def tokenizer_by(unit: Unit, **rules: Any) -> Tokenizer:
    """Return a new tokenizer of text into a unit; for pieces, a tokenizer of words. rules: fields of Tokenizer."""
    if unit.is_character:
        return CharTokenizer(graphemes=unit is Unit.grapheme, **rules)
    return WordTokenizer(**rules)


def split_words(text: str) -> list[str]:
    """Return the words of a text, which ASCII white space separates: a no-break space is part of a word."""
    return [word for word in WHITE.split(text) if word]


def is_white(text: str) -> bool:
    """Return whether a text consists only of white space that separates words."""
    return WHITE.fullmatch(text) is not None


class TextBlock(NamedTuple):
    """D texts in UTF-8. content: their lines, each ending in a newline; ends: where each text ends, int64 `[D]`."""

    content: bytes
    ends: IntArray

    def rewrite(self, content: bytes) -> TextBlock:
        """Return the texts with rewritten lines, whose number is the same."""
        return self if content is self.content else TextBlock(content, ends_in(self, line_ends(content), len(content)))


def line_ends(content: bytes) -> IntArray:
    """Return the end of each line, after its newline: int64."""
    return np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == NEWLINE) + 1


def ends_in(block: TextBlock, ends: IntArray, size: int) -> IntArray:
    """Return the end of each text of a block in another form of the block, such as its characters, int64 `[D]`.

    ends: the end of each line in that form. size: the length of that form, where a last line without a newline ends.
    """
    return np.append(ends, size)[np.searchsorted(line_ends(block.content), block.ends)]


@numba.njit(cache=True, nogil=True, inline="always")
def _is_space(c: Any) -> Any:
    return c == 32 or 9 <= c <= 13


# The state of the kernel: byte of the block, ids written, texts ended, words in the table, words in the line, empty
# lines, byte of the reserved word that it stopped at (or -1).
AT, WRITTEN, TEXTS, TYPES, IN_LINE, EMPTY, BAD = range(7)


@numba.njit(cache=True, nogil=True)
def _tokenize(
    block: Any,
    ends: Any,
    sentences: bool,
    blank_lines: bool,
    tags: bool,
    eos: int,
    bos: int,
    mark: int,
    grows: bool,
    ids: Any,
    id_ends: Any,
    slots: Any,
    starts: Any,
    arena: Any,
    state: Any,
) -> None:
    """Write the ids of the words of texts into `ids`, and the end of each text's ids into `id_ends`.

    ends: the end of each text in the block, after a newline. mark: the id of `<s>` and `</s>` in the text; REFUSED
    stops the loop. grows: whether unknown words are added to the table; if not, they are OOV.

    The plain form is `[table[word] for word in split_words(line)]` per line (tests/data/test_tokenizer.py ties them).
    It is one loop over bytes, without a string, a slice or an allocation per word, so that it takes a few nanoseconds
    per byte. The state is copied to locals, which stay in registers, and back. A compiled loop cannot make its arrays
    larger: a growing one stops when its table is half full, and is called again with a larger one.
    """
    n = len(block)
    i, size, text = state[AT], state[WRITTEN], state[TEXTS]
    types, in_line = state[TYPES], state[IN_LINE]
    while i < n:
        c = block[i]
        if c == NEWLINE:
            if in_line == 0 and not blank_lines:
                state[EMPTY] += 1
            elif sentences:
                ids[size] = eos
                size += 1
            in_line = 0
            i += 1
            if i == ends[text]:
                id_ends[text] = size
                text += 1
            continue
        if _is_space(c):
            i += 1
            continue
        if grows and types * 2 >= len(slots):
            break
        first = i
        while i < n and not _is_space(block[i]):
            i += 1
        last = i
        if tags:  # word/tag: its last slash, unless the word would be empty
            slash = last - 1
            while slash > first and block[slash] != SLASH:
                slash -= 1
            last = slash if slash > first else last
        hashed = hash_bytes(block, first, last)
        slot = find_slot(block, first, last, hashed, slots, starts, arena)
        word = slots[slot] & WORD if slots[slot] >= 0 else np.int64(OOV)
        if word < 0 and grows:
            word = types
            slots[slot] = entry(hashed, types)
            for j in range(last - first):
                arena[starts[types] + j] = block[first + j]
            starts[types + 1] = starts[types] + last - first
            types += 1
        elif word in (eos, bos):
            if mark == REFUSED:
                state[BAD] = first
                break
            word = mark
        ids[size] = word
        size += 1
        in_line += 1
    state[AT], state[WRITTEN], state[TEXTS] = i, size, text
    state[TYPES], state[IN_LINE] = types, in_line


@dataclass(kw_only=True)
class Tokenizer(ABC):
    """The rules that turn lines into ids, and the counts so far.

    sentences: whether `</s>` follows each sentence.
    rules: the rules that rewrite text before it is cut.
    graphemes: whether characters are grapheme clusters.
    tags: whether words are word/tag, and the tag is dropped.
    blank_lines: whether lines without words are also sentences.
    marks: the id of the words `<s>` and `</s>` in the text: REFUSED or OOV, whose provisional id is BOS_ID.
    vocabulary: the vocabulary whose ids are returned; None for provisional ids, of which RESERVED are the first. Only a
    tokenizer with provisional ids counts empty_lines that were skipped, changed_words that were not in the normal form,
    and inserted_spaces of a segmenter.
    """

    sentences: bool
    rules: TextRules = UNCHANGED
    graphemes: bool = False
    tags: bool = False
    blank_lines: bool = False
    marks: int = REFUSED
    vocabulary: Vocabulary | None = None
    empty_lines: int = field(default=0, init=False)
    changed_words: int = field(default=0, init=False)
    inserted_spaces: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._grows = self.vocabulary is None

    def __call__(self, block: bytes, name: str) -> Ids:
        """Return the ids int32 `[N]` of a block of whole lines in UTF-8, which end in "\\n" or "\\r\\n"."""
        return self.texts(TextBlock(block, np.array([len(block)])), name)[0]

    @abstractmethod
    def texts(self, block: TextBlock, name: str) -> tuple[Ids, IntArray]:
        """Return the ids int32 `[N]` of texts, and int64 `[D + 1]`, where the ids of each text begin, and N.

        name: name of the text, for errors. Raises RecordError for the words `<s>` and `</s>` if they are REFUSED.
        """

    @abstractmethod
    def types(self, first: int = 0) -> list[str]:
        """Return the types from provisional id `first` on, in their order."""

    def _rewrite(self, content: bytes) -> bytes:
        written = self.rules.encoded(content)
        if self._grows and written is not content:
            self.changed_words += self.rules.count_changed(content)
            self.inserted_spaces += self.rules.count_inserted(content, written)
        return written


class WordTokenizer(Tokenizer):
    """Words are separated by ASCII white space; a line with words is a sentence. A type takes some 24 bytes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        vocabulary = self.vocabulary
        eos, bos = (EOS_ID, BOS_ID) if vocabulary is None else (vocabulary.eos, vocabulary.bos)
        eos = vocabulary.end_mark if vocabulary is not None and self.sentences else eos
        mark = BOS_ID if self.marks == OOV and self._grows else self.marks
        self._marks = (self.sentences, self.blank_lines, self.tags, OOV if eos is None else eos, bos, mark, self._grows)
        self._table = WordTable(RESERVED, 1 << 16) if vocabulary is None else WordTable(vocabulary.words)

    def texts(self, block: TextBlock, name: str) -> tuple[Ids, IntArray]:
        content, ends = block.rewrite(self._rewrite(block.content))
        letters = np.frombuffer(content, dtype=np.uint8)
        pieces = 1 if self._grows else max(1, min(threads(), len(content) // MIN_BYTES_PER_THREAD))
        cuts = np.searchsorted(ends, np.arange(1, pieces) * len(content) // pieces).tolist()
        parts = run((self._ids, letters, ends, name, *limits) for limits in itertools.pairwise([0, *cuts, len(ends)]))
        before = np.cumsum([0, *(len(ids) for ids, _ in parts)])
        all_ends = [part_ends + count for (_, part_ends), count in zip(parts, before.tolist(), strict=False)]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([[0], *all_ends])

    def _ids(
        self, letters: npt.NDArray[np.uint8], ends: IntArray, name: str, first: int, last: int
    ) -> tuple[Ids, IntArray]:
        """Return the ids of the texts from `first` to before `last` of a block, and the end of each text's ids."""
        begin, end = int(ends[first - 1]) if first else 0, int(ends[last - 1]) if last else 0
        ids, id_ends = np.empty(end - begin, dtype=np.int32), np.empty(last - first, dtype=np.int64)
        state, table = np.zeros(7, dtype=np.int64), self._table
        state[AT], state[TYPES], state[BAD] = begin, table.size, -1
        if self._grows:
            table.reserve(end - begin)
        while True:
            arrays = ids, id_ends, table.slots, table.starts, table.arena, state
            _tokenize(letters[:end], ends[first:last], *self._marks, *arrays)
            table.size = int(state[TYPES])
            if state[BAD] >= 0:
                raise mark_error(letters[state[BAD] :].tobytes().split(maxsplit=1)[0].decode(), name)
            if state[AT] >= end:
                break
            table.double()
        if self._grows:
            self.empty_lines += int(state[EMPTY])
        return ids[: state[WRITTEN]], id_ends

    def types(self, first: int = 0) -> list[str]:
        return self._table.words(first)


def mark_error(mark: str, where: str) -> RecordError:
    """Return the error for `<s>` or `</s>` as a word of text to train on."""
    return RecordError(f"{where}: {mark} is in the text: lmtool adds sentence boundaries itself; remove it")


class CharTokenizer(Tokenizer):
    """Every character, a code point or a grapheme cluster, is a word, including white space. A line with other
    characters than white space is a sentence; without sentences, each line ends in "\\n".
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        vocabulary = self.vocabulary
        self._types = list(RESERVED if vocabulary is None else vocabulary.words)
        self._eos = EOS_ID if vocabulary is None else vocabulary.end_mark
        self._ids = np.full(sys.maxunicode + 1, OOV, dtype=np.int32)  # the id of each code point, and then cluster
        self._clusters: dict[str, int] = {}  # clusters of several code points, numbered after these
        for index, word in enumerate(self._types):
            if len(word) == 1 or (self.graphemes and word not in RESERVED):
                points = self._points([word])  # may replace the array of ids
                self._ids[points] = index

    def texts(self, block: TextBlock, name: str) -> tuple[Ids, IntArray]:
        text = self._rewrite(block.content.replace(b"\r\n", b"\n")).decode("utf-8", "surrogatepass")
        text = TAG.sub("", text) if self.tags else text
        if self.graphemes and not text.isascii():
            points = self._points(graphemes(text))
        else:
            points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        newline = points == NEWLINE
        lines = np.flatnonzero(newline) + 1
        ends = np.append(0, ends_in(block, lines, len(points)))
        if self.sentences and not self.blank_lines:
            letters = np.cumsum((points != 32) & ((points < 9) | (points > 13)))
            empty = np.diff(letters[lines - 1], prepend=0) == 0
            self.empty_lines += int(empty.sum())
            kept = np.repeat(~empty, np.diff(lines, prepend=0))
            points, newline, ends = points[kept], newline[kept], np.append(0, np.cumsum(kept))[ends]
        names = list(self._clusters)
        for point in np.unique(points[~newline] if self.sentences else points) if self._grows else ():
            if self._ids[point] < 0:
                self._ids[point] = len(self._types)
                self._types.append(chr(point) if point <= sys.maxunicode else names[point - sys.maxunicode - 1])
        ids = self._ids[points]
        if self.sentences:
            ids[newline] = self._eos
        return ids, ends

    def types(self, first: int = 0) -> list[str]:
        return self._types[first:]

    def _points(self, clusters: list[str]) -> npt.NDArray[np.uint32]:
        """Return the code points of grapheme clusters, and numbers, new or known, for clusters of several of them."""
        known, first = self._clusters, sys.maxunicode + 1
        points = [ord(c) if len(c) == 1 else first + known.setdefault(c, len(known)) for c in clusters]
        if first + len(known) > len(self._ids):
            self._ids = np.append(self._ids, np.full(len(self._ids), OOV, dtype=np.int32))
        return np.array(points, dtype=np.uint32)
