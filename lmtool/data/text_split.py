"""A text outside the store, tokenised with its vocabulary: what `lmtool eval text=FILE` scores."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lmtool.config.groups import DataConfig
from lmtool.config.vocabulary import Unit
from lmtool.data.choose_pieces import pieces_of_types
from lmtool.data.corpus import Split
from lmtool.data.text_form import TextForm
from lmtool.data.tokeniser import RESERVED, CharTokeniser, WordTokeniser
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import IntArray


def tokeniser_of(data: DataConfig) -> WordTokeniser | CharTokeniser:
    """A new tokeniser by a data set's settings."""
    rules = data.vocabulary
    blank = data.takes_blank_lines()
    return _tokeniser(rules.unit is Unit.char, data.sentences, data.drops_tags(), rules.lowercase, blank)


def _tokeniser(chars: bool, sentences: bool, tags: bool, lowercase: bool, blank: bool) -> WordTokeniser | CharTokeniser:
    if chars:
        return CharTokeniser(sentences=sentences, lowercase=lowercase, blank_lines=blank)
    return WordTokeniser(sentences=sentences, tags=tags, lowercase=lowercase, blank_lines=blank)


def split_of_text(blocks: Iterable[bytes], name: str, form: TextForm) -> tuple[Split, int]:
    """The tokens of blocks of whole lines, tokenised by the rules of a run's data, with the ids of its vocabulary; and
    the number of empty lines that were skipped.

    A word out of the vocabulary is `<unk>` and counted as OOV. Raises UserError, naming `name`, for `<s>` or `</s>` in
    the text.
    """
    vocabulary = form.vocabulary
    tokeniser = _tokeniser(form.chars, vocabulary.eos is not None, form.tags, form.lowercase, form.blank_lines)
    provisional = np.concatenate([tokeniser(block, name) for block in blocks])
    types = tokeniser.types()
    words = tokeniser.words if isinstance(tokeniser, CharTokeniser) else len(provisional)
    if form.subwords is not None:
        pieces = pieces_of_types(form.subwords, types).of(provisional)
        ids = vocabulary.encode([*RESERVED, *form.subwords.names])[pieces]
        oov = np.empty(0, dtype=np.int64)
    else:
        known = np.array([word in vocabulary.ids for word in types])
        ids = vocabulary.encode(types)[provisional]
        oov = np.flatnonzero(~known[provisional])
    offsets = sentence_offsets(ids, vocabulary)
    return Split(ids, offsets, oov, tokeniser.characters, vocabulary.bos, words=words), tokeniser.empty_lines


def sentence_offsets(ids: IntArray, vocabulary: Vocabulary) -> IntArray:
    """int64 `[S + 1]`: where sentences begin among ids `[N]`, and N; `[0, N]` without sentences."""
    if vocabulary.eos is None:
        return np.array([0, len(ids)])
    return np.append(0, np.flatnonzero(ids == vocabulary.eos) + 1)
