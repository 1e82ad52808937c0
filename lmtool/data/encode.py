"""Blocks of texts -> the ids of a vocabulary, compiled, in parallel and in memory that does not grow with the text.

The words are those that WordTokeniser and CharTokeniser cut, which number the types of a text whose vocabulary is not
known yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.config.data import DataConfig, Unit
from lmtool.data.choose_vocabulary import pieces_of_types
from lmtool.data.corpus import Split
from lmtool.data.subwords import Subwords
from lmtool.data.text_form import TextForm
from lmtool.data.tokenizer import (
    NEWLINE,
    RESERVED,
    CharTokeniser,
    WordTable,
    WordTokeniser,
    find_word,
    is_space,
    tag_begin,
    word_end,
)
from lmtool.data.vocabulary import Vocabulary
from lmtool.system.arrays import IntArray
from lmtool.system.parallel import run, threads

Array = npt.NDArray[Any]
OOV = -1
AT_LEAST = 1 << 16  # bytes that are worth a thread


class TextBlock(NamedTuple):
    """D texts in UTF-8. content: their lines, each ending in a newline; ends: where each text ends, int64 `[D]`."""

    content: bytes
    ends: IntArray


class EncodedTexts(NamedTuple):
    """D texts as ids. split: their tokens, whose contexts do not cross texts. documents: int64 `[D + 1]`, the first
    token of each text, and N. oov: int64 `[D]`, the tokens of each that are out of the vocabulary.
    """

    split: Split
    documents: IntArray
    oov: IntArray


def line_ends(content: bytes) -> IntArray:
    """Where each line ends, behind its newline: int64."""
    return np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == NEWLINE) + 1


class TextEncoder:
    """Texts by the rules of a run's data: words, pieces of words or characters, sentences or not, lower case, tags
    dropped.

    `<s>` and `</s>` in a text are words out of the vocabulary, as `<s>` in a page of the web is no mark of ours; where
    words are cut into pieces, they raise UserError.
    """

    def __init__(self, form: TextForm) -> None:
        self._form = form
        vocabulary = form.vocabulary
        self._eos = OOV if vocabulary.eos is None else vocabulary.eos
        if form.chars:
            self._points = np.full(0x110000, OOV, dtype=np.int32)  # the id of each code point
            for index, word in enumerate(vocabulary.words):
                if len(word) == 1:
                    self._points[ord(word)] = index
        else:
            self._table = WordTable(vocabulary.words)

    def __call__(self, block: TextBlock) -> EncodedTexts:
        """The ids of the texts of a block."""
        if self._form.subwords is not None:
            ids, documents = self._pieces(block, self._form.subwords)
        else:
            ids, documents = self._characters(block) if self._form.chars else self._words(block)
        unknown = ids == OOV
        oov = np.diff(np.concatenate([[0], np.cumsum(unknown)])[documents])
        ids[unknown] = self._form.vocabulary.unk
        starts = np.unique(documents)
        offsets = starts if self._form.vocabulary.eos is None else np.append(0, np.flatnonzero(ids == self._eos) + 1)
        split = Split(ids, offsets, np.flatnonzero(unknown), 0, self._form.vocabulary.bos, documents=starts)
        return EncodedTexts(split, documents, oov)

    def _words(self, block: TextBlock) -> tuple[Array, IntArray]:
        if self._form.lowercase:
            text = block.content.decode("utf-8", "surrogatepass").lower().encode("utf-8", "surrogatepass")
            ends = line_ends(text)[_lines_before(block)]
        else:
            text, ends = block.content, block.ends
        letters = np.frombuffer(text, dtype=np.uint8)
        pieces = max(1, min(threads(), len(text) // AT_LEAST))
        cuts = np.searchsorted(ends, np.arange(1, pieces) * len(text) // pieces)
        firsts = np.concatenate([[0], cuts, [len(ends)]])
        starts = np.append(0, ends)
        sizes = np.empty(len(ends), dtype=np.int64)
        table, vocabulary = self._table, self._form.vocabulary
        rules = (vocabulary.eos is not None, self._form.blank_lines, self._form.tags, self._eos, vocabulary.bos)
        parts = run(
            (_encode, letters, starts, first, last, *rules, table.slots, table.starts, table.arena, sizes)
            for first, last in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)
        )
        return np.concatenate(parts), np.append(0, np.cumsum(sizes))

    def _pieces(self, block: TextBlock, subwords: Subwords) -> tuple[Array, IntArray]:
        _, ends = self._words(block)  # in words
        vocabulary = self._form.vocabulary
        tokeniser = WordTokeniser(
            sentences=vocabulary.eos is not None,
            tags=self._form.tags,
            lowercase=self._form.lowercase,
            blank_lines=self._form.blank_lines,
        )
        text = block.content.decode("utf-8", "replace")  # half a surrogate pair, which JSON may have, is no UTF-8
        words = tokeniser(text.encode(), "text")
        table = pieces_of_types(subwords, tokeniser.types())
        ids = vocabulary.encode([*RESERVED, *subwords.names])[table.of(words)]
        return ids, np.append(0, np.cumsum(table.lengths[words]))[ends]

    def _characters(self, block: TextBlock) -> tuple[Array, IntArray]:
        text = block.content.decode("utf-8", "surrogatepass").replace("\r\n", "\n")
        text = text.lower() if self._form.lowercase else text
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        newline = points == NEWLINE
        ends = (np.flatnonzero(newline) + 1)[_lines_before(block)]
        ids = self._points[points]
        if self._eos == OOV:
            return ids, np.append(0, ends)
        ids[newline] = self._eos
        if self._form.blank_lines:
            return ids, np.append(0, ends)
        kept = ~(newline & np.concatenate([[True], newline[:-1]]))  # an empty line is no sentence
        return ids[kept], np.concatenate([[0], np.cumsum(kept)])[np.append(0, ends)]


def _lines_before(block: TextBlock) -> IntArray:
    """The number of the last line of each text among the lines of the block, int64 `[D]`."""
    return np.searchsorted(line_ends(block.content), block.ends)


@numba.njit(cache=True, nogil=True)
def _encode(
    block: Any,
    ends: Any,
    first: int,
    last: int,
    sentences: bool,
    blank_lines: bool,
    tags: bool,
    eos: int,
    bos: int,
    slots: Any,
    starts: Any,
    arena: Any,
    sizes: Any,
) -> Any:
    """The ids int32 of texts `first` to before `last`, OOV for unknown words; their numbers into sizes.

    ends: where the text before each text ends, and where the last one does. Words are cut as by WordTokeniser.
    """
    ids = np.empty(ends[last] - ends[first], np.int32)  # a word has a letter and white space, which `</s>` may have
    written = 0
    for text in range(first, last):
        before = written
        in_line = 0
        i = ends[text]
        end = ends[text + 1]
        while i < end:
            c = block[i]
            if c == NEWLINE:
                if sentences and (in_line > 0 or blank_lines):
                    ids[written] = eos
                    written += 1
                in_line = 0
                i += 1
                continue
            if is_space(c):
                i += 1
                continue
            begin = i
            i = word_end(block, begin, end)
            stop = tag_begin(block, begin, i) if tags else i
            word = find_word(block, begin, stop, slots, starts, arena)
            ids[written] = OOV if word in (eos, bos) else word
            written += 1
            in_line += 1
        sizes[text] = written - before
    return ids[:written].copy()


def tokeniser_of(data: DataConfig) -> WordTokeniser | CharTokeniser:
    """A new tokeniser by a data set's settings."""
    rules = data.vocabulary
    blank = data.takes_blank_lines()
    return _tokeniser(rules.unit is Unit.char, data.sentences, data.drops_tags(), rules.lowercase, blank)


def _tokeniser(chars: bool, sentences: bool, tags: bool, lowercase: bool, blank: bool) -> WordTokeniser | CharTokeniser:
    if chars:
        return CharTokeniser(sentences=sentences, lowercase=lowercase, blank_lines=blank)
    return WordTokeniser(sentences=sentences, tags=tags, lowercase=lowercase, blank_lines=blank)


def split_of_text(
    blocks: Iterable[bytes], name: str, form: TextForm, *, across_sentences: bool = False, documents: bool = False
) -> tuple[Split, int]:
    """Return the tokens of blocks of whole lines, tokenised by the rules of a run's data, as ids of its vocabulary; and
    the number of empty lines that were skipped.

    A word out of the vocabulary is `<unk>` and counted as OOV. across_sentences: whether the sentences are running
    text, for models whose contexts cross sentences; if not, each stands alone. documents: whether each block is a
    document, which no context leaves. Raises UserError, naming `name`, for `<s>` or `</s>` in the text.
    """
    vocabulary = form.vocabulary
    tokeniser = _tokeniser(form.chars, vocabulary.eos is not None, form.tags, form.lowercase, form.blank_lines)
    parts = [tokeniser(block, name) for block in blocks]
    provisional, ends = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    types = tokeniser.types()
    words = tokeniser.words if isinstance(tokeniser, CharTokeniser) else len(provisional)
    if form.subwords is not None:
        table = pieces_of_types(form.subwords, types)
        ids = vocabulary.encode([*RESERVED, *form.subwords.names])[table.of(provisional)]
        ends = np.append(0, np.cumsum(table.lengths[provisional]))[ends]
        oov = np.empty(0, dtype=np.int64)
    else:
        known = np.array([word in vocabulary.ids for word in types])
        ids = vocabulary.encode(types)[provisional]
        oov = np.flatnonzero(~known[provisional])
    offsets = np.unique(ends) if documents and vocabulary.eos is None else sentence_offsets(ids, vocabulary)
    split = Split(
        ids,
        offsets,
        oov,
        tokeniser.characters,
        vocabulary.bos,
        independent_sentences=vocabulary.eos is not None and not across_sentences,
        documents=np.unique(ends) if documents else None,
        words=words,
        oov_words=[types[k] for k in provisional[oov].tolist()],
    )
    return split, tokeniser.empty_lines


def sentence_offsets(ids: IntArray, vocabulary: Vocabulary) -> IntArray:
    """int64 `[S + 1]`: where sentences begin among ids `[N]`, and N; `[0, N]` without sentences."""
    if vocabulary.eos is None:
        return np.array([0, len(ids)])
    return np.append(0, np.flatnonzero(ids == vocabulary.eos) + 1)
