"""A model whose tokens may be parts of characters, without tokens after which a text could not be UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cache

import numpy as np

from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import EOS
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray, IntArray

NO_TEXT = b"\xff"  # the bytes of <unk>, <s>, and control characters that train lacks: they are in no text
CONTROLS = {bytes([byte]) for byte in (*range(0x20), 0x7F)}


def in_whole_characters(model: LanguageModel, form: TextForm) -> LanguageModel:
    """Return the model of whole characters of a model of pieces; a model of words or letters as it is."""
    if form.subwords is None:
        return model
    known, counts = dict(zip(form.subwords.names, form.subwords.contents, strict=True)), form.vocabulary.counts.tolist()
    contents = [known.get(word, NO_TEXT) for word in form.vocabulary.words]
    contents = [NO_TEXT if c in CONTROLS and not n else c for c, n in zip(contents, counts, strict=True)]
    return WholeCharacters(
        model, [b"\n" if w == EOS else c for w, c in zip(form.vocabulary.words, contents, strict=True)]
    )


class WholeCharacters(LanguageModel):
    """A model in which a token has probability 0 if the text could not be UTF-8 after it, such as `</s>` after half a
    character, or if no text has it, such as `<unk>`; p of the others is renormalized. Where none is left, all tokens
    keep their probabilities.
    """

    vocabulary_size: int = 0
    context_size: int | None = None

    def __init__(self, model: LanguageModel, contents: Sequence[bytes]) -> None:
        """contents: the bytes of each token `[V]`."""
        self.model, self.vocabulary_size = model, model.vocabulary_size
        # A character has at most four bytes: that which a context ends in has begun in its last three tokens.
        self.context_size = None if model.context_size is None else max(model.context_size, 3)
        self._contents = contents
        self._following = cache(lambda begun: np.array([_may_begin(begun + content) for content in contents]))

    def log_dist(self, contexts: IntArray) -> FloatArray:
        size = self.model.context_size
        log_p = self.model.log_dist(contexts if size is None else contexts[:, contexts.shape[1] - size :])
        tails = [b"".join(self._contents[token] for token in context) for context in contexts[:, -3:].tolist()]
        begun = [tail[codecs.utf_8_decode(tail, "ignore", False)[1] :] for tail in tails]
        left = np.where([self._following(start) for start in begun], log_p, -np.inf)
        total = np.logaddexp.reduce(left, axis=1, keepdims=True)
        return np.where(np.isneginf(total), log_p, left - np.maximum(total, np.finfo(np.float64).min))


def _may_begin(text: bytes) -> bool:
    """Return whether a text in UTF-8 may begin with these bytes."""
    try:
        rest = text[codecs.utf_8_decode(text, "strict", False)[1] :]
    except UnicodeDecodeError:
        return False
    return not b"\xed\xa0" <= rest < b"\xee"  # surrogates, of which the codec reads on
