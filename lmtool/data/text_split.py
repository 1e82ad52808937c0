"""A text that is in no store, read with the words of one: what `lmtool eval text=FILE` scores."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lmtool.config import DataConfig, TextData, Unit
from lmtool.data.corpus import Split
from lmtool.data.tokeniser import CharTokeniser, WordTokeniser
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import IntArray


def tokeniser_of(data: DataConfig) -> WordTokeniser | CharTokeniser:
    """The tokeniser of a data set's settings, which has read nothing yet."""
    rules = data.vocabulary
    if rules.unit is Unit.char:
        return CharTokeniser(sentences=data.sentences, lowercase=rules.lowercase)
    tags = isinstance(data, TextData) and data.tags
    return WordTokeniser(sentences=data.sentences, tags=tags, lowercase=rules.lowercase)


def split_of_text(blocks: Iterable[bytes], name: str, data: DataConfig, vocabulary: Vocabulary) -> Split:
    """The tokens of blocks of whole lines, cut into words as the data set was, with the ids of its vocabulary.

    A word that is not known is `<unk>` and an OOV. Raises UserError, naming `name`, for text that cannot be read.
    """
    tokeniser = tokeniser_of(data)
    provisional = np.concatenate([tokeniser(block, name) for block in blocks])
    types = tokeniser.types()
    known = np.array([word in vocabulary.ids for word in types])
    ids = vocabulary.encode(types)[provisional]
    return Split(
        ids,
        sentence_offsets(ids, vocabulary),
        np.flatnonzero(~known[provisional]),
        tokeniser.characters,
        vocabulary.bos,
    )


def sentence_offsets(ids: IntArray, vocabulary: Vocabulary) -> IntArray:
    """Where sentences begin among ids `[N]`, and N: as in Split."""
    if vocabulary.eos is None:
        return np.array([0, len(ids)])
    return np.append(0, np.flatnonzero(ids == vocabulary.eos) + 1)
