"""Text -> provisional ids: words are numbered as they are first seen, in one pass of bounded memory.

Which of them stay, and in what order, is decided after the pass, from the counts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import BOS, EOS, UNK
from lmtool.errors import UserError


def joined(words: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each word begins in the bytes of all, and where the last ends, `[W + 1]`; and these bytes."""
    encoded = [word.encode() for word in words]
    starts = np.cumsum([0, *(len(word) for word in encoded)])
    return starts, np.frombuffer(b"".join(encoded) + b"\0", dtype=np.uint8)


class WordTable:
    """From the bytes of words, all different, to their numbers."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.starts, self.arena = joined(words)
        self.slots = np.full(1 << max(2 * len(words), 2).bit_length(), -1, dtype=np.int64)
        _fill(self.slots, self.starts, self.arena)


@numba.njit(cache=True, nogil=True)
def _fill(slots: Any, starts: Any, arena: Any) -> None:
    mask = np.uint64(len(slots) - 1)
    for word in range(len(starts) - 1):
        slot = hash_bytes(arena, starts[word], starts[word + 1]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@numba.njit(cache=True, nogil=True)
def find_word(block: Any, first: int, last: int, slots: Any, starts: Any, arena: Any) -> Any:
    """The number of the word in bytes `first` to before `last`, -1 for none; then the arrays of a WordTable."""
    mask = np.uint64(len(slots) - 1)
    slot = hash_bytes(block, first, last) & mask
    while slots[slot] >= 0:
        word = slots[slot]
        if starts[word + 1] - starts[word] == last - first:
            same = True
            for i in range(last - first):
                if arena[starts[word] + i] != block[first + i]:
                    same = False
                    break
            if same:
                return word
        slot = (slot + np.uint64(1)) & mask
    return np.int64(-1)


@numba.njit(cache=True, nogil=True)
def find_words(block: Any, spans: Any, slots: Any, starts: Any, arena: Any, numbers: Any) -> None:
    """The numbers `[M, k]` of the words in spans `[M, k, 2]` of a block, -1 for none."""
    for i in range(spans.shape[0]):
        for j in range(spans.shape[1]):
            numbers[i, j] = find_word(block, spans[i, j, 0], spans[i, j, 1], slots, starts, arena)


Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int32]

# The words that every vocabulary has; `<s>` and `</s>` are not allowed in the text.
RESERVED = (EOS, UNK, BOS)
EOS_ID, UNK_ID, BOS_ID = 0, 1, 2
NEWLINE, SLASH = 10, 47

# The state of the kernel: byte of the block, ids written, types, words in the line, empty lines, byte of the reserved
# word that it stopped at (or -1).
AT, WRITTEN, TYPES, IN_LINE, EMPTY, BAD = range(6)


@numba.njit(cache=True, nogil=True)
def hash_bytes(block: Any, first: int, last: int) -> Any:
    """FNV-1a of bytes `first` to before `last`, its high bits folded down because tables use the low ones."""
    value = np.uint64(14695981039346656037)
    for i in range(first, last):
        value = (value ^ np.uint64(block[i])) * np.uint64(1099511628211)
    return value ^ (value >> np.uint64(29))


@numba.njit(cache=True, nogil=True, inline="always")
def is_space(c: Any) -> Any:
    """Whether a byte is ASCII white space."""
    return c == 32 or 9 <= c <= 13


@numba.njit(cache=True, nogil=True, inline="always")
def word_end(block: Any, first: int, last: int) -> Any:
    """Where the word that begins at `first` ends: at white space, or at `last`."""
    end = first
    while end < last and not is_space(block[end]):
        end += 1
    return end


@numba.njit(cache=True, nogil=True, inline="always")
def tag_begin(block: Any, first: int, last: int) -> Any:
    """Where the tag of word/tag from `first` to before `last` begins: its last slash, unless the word would be empty;
    `last` where there is none.
    """
    slash = last - 1
    while slash > first and block[slash] != SLASH:
        slash -= 1
    return slash if slash > first else last


@numba.njit(cache=True, nogil=True)
def _tokenise(
    block: Any,
    sentences: bool,
    blank_lines: bool,
    tags: bool,
    ids: Any,
    table: Any,
    hashes: Any,
    starts: Any,
    arena: Any,
    state: Any,
) -> None:
    """Cut `block` at ASCII white space into `ids`, until it ends or the table is half full.

    table: a hash table with open addressing, type + 1 in each slot, 0 for none. The bytes of type t are
    arena[starts[t]:starts[t + 1]].
    """
    mask = np.uint64(len(table) - 1)
    n = len(block)
    i = state[AT]
    written = state[WRITTEN]
    types = state[TYPES]
    in_line = state[IN_LINE]
    while i < n:
        c = block[i]
        if c == NEWLINE:
            if in_line == 0 and not blank_lines:
                state[EMPTY] += 1
            elif sentences:
                ids[written] = EOS_ID
                written += 1
            in_line = 0
            i += 1
            continue
        if is_space(c):
            i += 1
            continue
        if types * 2 >= len(table):
            break
        first = i
        i = word_end(block, first, n)
        last = tag_begin(block, first, i) if tags else i
        hashed = hash_bytes(block, first, last)
        slot = hashed & mask
        type_id = -1
        while table[slot] != 0:
            t = table[slot] - 1
            if hashes[t] == hashed and starts[t + 1] - starts[t] == last - first:
                same = True
                for j in range(last - first):
                    if arena[starts[t] + j] != block[first + j]:
                        same = False
                        break
                if same:
                    type_id = t
                    break
            slot = (slot + np.uint64(1)) & mask
        if type_id < 0:
            type_id = types
            table[slot] = types + 1
            hashes[types] = hashed
            for j in range(last - first):
                arena[starts[types] + j] = block[first + j]
            starts[types + 1] = starts[types] + last - first
            types += 1
        elif type_id in (EOS_ID, BOS_ID):
            state[BAD] = first
            break
        ids[written] = type_id
        written += 1
        in_line += 1
    state[AT] = i
    state[WRITTEN] = written
    state[TYPES] = types
    state[IN_LINE] = in_line


@numba.njit(cache=True, nogil=True)
def _rehash(table: Any, hashes: Any, types: int) -> None:
    mask = np.uint64(len(table) - 1)
    for t in range(types):
        slot = hashes[t] & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = t + 1


class WordTokeniser:
    """Words are separated by ASCII white space; a line with words is a sentence.

    sentences: whether `</s>` follows each sentence. tags: whether words are word/tag, and the tag is dropped.
    lowercase: whether words become lower case. blank_lines: whether other lines are sentences, too. Memory: the types
    seen so far, about 40 bytes each and their letters.
    """

    def __init__(self, *, sentences: bool, tags: bool, lowercase: bool, blank_lines: bool = False) -> None:
        self._sentences, self._blank_lines = sentences, blank_lines
        self._tags = False  # the reserved words below have none
        self._lowercase = lowercase
        self._table = np.zeros(1 << 16, dtype=np.int32)
        self._hashes = np.empty(1 << 16, dtype=np.uint64)
        self._starts = np.zeros((1 << 16) + 1, dtype=np.int64)
        self._arena = np.empty(1 << 20, dtype=np.uint8)
        self._types = 0
        self.empty_lines = 0
        self.characters = 0
        for word in RESERVED:
            self._run(np.frombuffer(word.encode(), dtype=np.uint8), "")
        self._tags = tags

    def __call__(self, block: bytes, name: str) -> Ids:
        """The provisional ids int32 `[N]` of a block of whole lines in UTF-8, which end in "\\n" or "\\r\\n".

        name: of the text, for errors. Raises UserError for `<s>` or `</s>` in the text.
        """
        text = block.decode("utf-8")
        self.characters += len(text) - text.count("\r\n")  # which is one line end
        if self._lowercase:
            block = text.lower().encode("utf-8")
        return self._run(np.frombuffer(block, dtype=np.uint8), name)

    def _run(self, block: Bytes, name: str) -> Ids:
        ids = np.empty(len(block) + 1, dtype=np.int32)
        state = np.zeros(6, dtype=np.int64)
        state[TYPES], state[BAD] = self._types, -1
        self._arena = _grown(self._arena, int(self._starts[self._types]) + len(block))
        while True:
            _tokenise(
                block,
                self._sentences,
                self._blank_lines,
                self._tags,
                ids,
                self._table,
                self._hashes,
                self._starts,
                self._arena,
                state,
            )
            self._types = int(state[TYPES])
            if state[BAD] >= 0:
                start = int(state[BAD])
                text = block.tobytes()
                word = text[start:].split(maxsplit=1)[0].decode()
                line = text.count(b"\n", 0, start) + 1
                raise UserError(
                    f"{name}: {word} stands in the text (line {line} of this part): lmtool marks where sentences "
                    "begin and end by itself; remove it"
                )
            if state[AT] >= len(block):
                break
            size = 2 * len(self._table)
            self._table = np.zeros(size, dtype=np.int32)
            self._hashes = _grown(self._hashes, size)
            self._starts = _grown(self._starts, size + 1)
            _rehash(self._table, self._hashes, self._types)
        self.empty_lines += int(state[EMPTY])
        return ids[: state[WRITTEN]].copy()

    def types(self, first: int = 0) -> list[str]:
        """The types from provisional id `first` on, in their order."""
        starts = self._starts[first : self._types + 1].tolist()
        letters = self._arena[starts[0] : starts[-1]].tobytes()
        return [letters[a - starts[0] : b - starts[0]].decode("utf-8") for a, b in itertools.pairwise(starts)]


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array, or a copy of it with `size` entries or more."""
    if len(array) >= size:
        return array
    larger = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class CharTokeniser:
    """Every character is a word, white space too; a line is a sentence, or ends in the word "\\n".

    sentences: whether `</s>` follows each line, instead of "\\n". lowercase: whether characters become lower case.
    blank_lines: whether lines without characters are sentences, too. Its `words` counts what stands between white
    space, as WordTokeniser cuts it, and the `</s>`.
    """

    def __init__(self, *, sentences: bool, lowercase: bool, blank_lines: bool = False) -> None:
        self._sentences, self._blank_lines = sentences, blank_lines
        self._lowercase = lowercase
        self._ids = np.full(0x110000, -1, dtype=np.int32)  # provisional id of each code point
        self._types = list(RESERVED)
        self.empty_lines = 0
        self.characters = 0
        self.words = 0

    def __call__(self, block: bytes, name: str) -> Ids:
        """The provisional ids int32 `[N]` of a block of whole lines in UTF-8, which end in "\\n" or "\\r\\n".

        name: of the text, for errors.
        """
        text = block.decode("utf-8").replace("\r\n", "\n")
        self.characters += len(text)
        if self._lowercase:
            text = text.lower()
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        newline = points == NEWLINE
        empty = newline & np.concatenate([[True], newline[:-1]]) & (not self._blank_lines)
        self.empty_lines += int(empty.sum())
        white = (points == 32) | ((points >= 9) & (points <= 13))
        self.words += int((~white & np.concatenate([[True], white[:-1]])).sum())
        if self._sentences:
            self.words += int((newline & ~empty).sum())
            points, newline = points[~empty], newline[~empty]
        for point in np.unique(points[~newline] if self._sentences else points):
            if self._ids[point] < 0:
                self._ids[point] = len(self._types)
                self._types.append(chr(point))
        ids = self._ids[points]
        if self._sentences:
            ids[newline] = EOS_ID
        return ids

    def types(self, first: int = 0) -> list[str]:
        """The types from provisional id `first` on, in their order."""
        return self._types[first:]
