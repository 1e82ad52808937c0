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
from lmtool.system.arrays import IntArray


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
