"""Encode text from outside the store as ids of its vocabulary: one text with all that is known of it, or many texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lmtool.data.choose_vocabulary import pieces_of_types
from lmtool.data.split import Split
from lmtool.data.subwords import Subwords
from lmtool.data.text_form import TextForm
from lmtool.data.tokenizer import OOV, RESERVED, CharTokenizer, Ids, TextBlock, ends_in, line_ends
from lmtool.data.vocabulary import Vocabulary
from lmtool.system.arrays import Array, IntArray


class EncodedTexts(NamedTuple):
    """D texts as ids. split: their tokens, whose contexts do not cross texts. documents: int64 `[D + 1]`, the first
    token of each text, and N. oov: int64 `[D]`, the number of OOVs in each.
    """

    split: Split
    documents: IntArray
    oov: IntArray


class TextEncoder:
    """Encode texts by the rules of a run's data, in parallel and in memory that does not grow with the text.

    `<s>` and `</s>` in a text are words out of the vocabulary, as `<s>` in a web page does not mark a sentence; where
    words are cut into pieces, they raise UserError.
    """

    def __init__(self, form: TextForm) -> None:
        self._form = form
        self._tokenizer = None if form.subwords is not None else form.tokenizer(form.vocabulary)

    def __call__(self, block: TextBlock) -> EncodedTexts:
        """Return the ids of the texts of a block."""
        vocabulary = self._form.vocabulary
        ids: Array
        if self._tokenizer is None:
            ids, documents = self._pieces(block)
        else:
            ids, documents = self._tokenizer.texts(block, "text")
        unknown = ids == OOV
        oov = np.diff(np.concatenate([[0], np.cumsum(unknown)])[documents])
        ids[unknown] = vocabulary.unk
        starts = np.unique(documents)
        offsets = starts if vocabulary.eos is None else sentence_offsets(ids, vocabulary)
        split = Split(ids, offsets, np.flatnonzero(unknown), 0, vocabulary.bos, documents=starts)
        return EncodedTexts(split, documents, oov)

    def _pieces(self, block: TextBlock) -> tuple[IntArray, IntArray]:
        subwords = self._form.subwords
        assert subwords is not None
        content = block.content.decode("utf-8", "replace").encode()  # JSON may have a lone surrogate, which UTF-8 lacks
        tokenizer = self._form.tokenizer()
        words, ends = tokenizer.texts(TextBlock(content, ends_in(block, line_ends(content), len(content))), "text")
        return _in_pieces(words, ends, tokenizer.types(), subwords, self._form.vocabulary)


def _in_pieces(
    words: Ids, ends: IntArray, types: list[str], subwords: Subwords, vocabulary: Vocabulary
) -> tuple[IntArray, IntArray]:
    """Return the ids of the pieces of provisional words, and where they end, given where the words do."""
    table = pieces_of_types(subwords, types)
    ids = vocabulary.encode([*RESERVED, *subwords.names])[table.of(words)]
    return ids, np.append(0, np.cumsum(table.lengths[words]))[ends]


def split_of_text(
    blocks: Iterable[bytes], name: str, form: TextForm, *, across_sentences: bool = False, documents: bool = False
) -> tuple[Split, int]:
    """Return the tokens of blocks of whole lines as ids of the vocabulary of a run's data, and the number of empty
    lines that were skipped.

    A word out of the vocabulary is `<unk>` and counted as OOV. across_sentences: whether the sentences are running
    text, for models whose contexts cross sentences; if not, each stands alone. documents: whether each block is a
    document, which no context leaves. Raises UserError, naming `name`, for `<s>` or `</s>` in the text.
    """
    vocabulary = form.vocabulary
    tokenizer = form.tokenizer()
    parts = [tokenizer(block, name) for block in blocks]
    provisional, ends = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    types = tokenizer.types()
    words = tokenizer.words if isinstance(tokenizer, CharTokenizer) else len(provisional)
    if form.subwords is not None:
        ids, ends = _in_pieces(provisional, ends, types, form.subwords, vocabulary)
        oov = np.empty(0, dtype=np.int64)
    else:
        known = np.array([word in vocabulary.ids for word in types])
        ids = vocabulary.encode(types)[provisional]
        oov = np.flatnonzero(~known[provisional])
    split = Split(
        ids,
        np.unique(ends) if documents and vocabulary.eos is None else sentence_offsets(ids, vocabulary),
        oov,
        tokenizer.characters,
        vocabulary.bos,
        independent_sentences=vocabulary.eos is not None and not across_sentences,
        documents=np.unique(ends) if documents else None,
        words=words,
        oov_words=[types[k] for k in provisional[oov].tolist()],
    )
    return split, tokenizer.empty_lines


def sentence_offsets(ids: Array, vocabulary: Vocabulary) -> IntArray:
    """Return int64 `[S + 1]`, where sentences begin among ids `[N]`, and N; `[0, N]` without sentences."""
    if vocabulary.eos is None:
        return np.array([0, len(ids)])
    return np.append(0, np.flatnonzero(ids == vocabulary.eos) + 1)
