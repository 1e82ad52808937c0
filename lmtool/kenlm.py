"""The interface of KenLM's Python module: a program changes only its import, to `import lmtool.kenlm as kenlm`.

`Model` takes an ARPA file, compressed or not, or the run folder of any n-gram model, network or mixture. Numbers are
KenLM's: log10 probabilities; a word outside the vocabulary counts as `<unk>`.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lmtool.data.tokenizer import split_words
from lmtool.data.vocabulary import EOS, SpecialTokens
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel as Contract
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query.single_state import SingleStates
from lmtool.runs.load import load
from lmtool.system.arrays import LN10

_OWNERS = itertools.count(1)  # numbers of models, by which they know their states


class LoadMethod(IntEnum):
    """KenLM's ways of loading; lmtool maps its models into memory with each of them."""

    LAZY, POPULATE_OR_LAZY, POPULATE_OR_READ, READ, PARALLEL_READ = range(5)


class ARPALoadComplain(IntEnum):
    """KenLM's warnings about ARPA files; lmtool always warns."""

    ALL, EXPENSIVE, NONE = range(3)


class Config:
    """KenLM's options of loading, which have no effect here."""

    def __init__(self) -> None:
        self.load_method = LoadMethod.POPULATE_OR_READ
        self.show_progress = True
        self.arpa_complain = ARPALoadComplain.ALL


class FullScoreReturn(NamedTuple):
    """The score of a word.

    log_prob: log10 p. ngram_length: the length of the longest n-gram of the model that ends in the word. oov: whether
    the word is outside the vocabulary.
    """

    log_prob: float
    ngram_length: int
    oov: bool


class State(bytearray):
    """What a model has read, as far as it affects later words: states are equal if all further scores are.

    A new state has no words. Hashable; it must not be written to while it is a key.
    """

    __slots__ = ()  # the bytes are the model's numbers, the length of the matched n-gram, and the number of the model

    def _key(self) -> bytes:
        return bytes(memoryview(self)[:-16])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._key() == other._key()

    def __ne__(self, other: object) -> bool:  # a bytearray's own comparisons take all bytes
        return not self == other

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, State) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._key() > other._key() if isinstance(other, State) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._key() <= other._key() if isinstance(other, State) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._key() >= other._key() if isinstance(other, State) else NotImplemented

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self._key())

    def __copy__(self) -> State:
        return State(self)

    def __deepcopy__(self, memo: dict[int, object]) -> State:
        return State(self)

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a State belongs to a model of this process: it cannot be pickled")


class _OtherStates:
    """The states of a model other than an n-gram model, as SingleStates has them: rows of LanguageModel.advance."""

    def __init__(self, model: Contract, special_tokens: SpecialTokens, ids: dict[str, int], owner: int) -> None:
        """Raises UserError for a model with a cache, which has no states."""
        self._model, self._special_tokens, self._ids = model, special_tokens, ids
        self.order = sys.maxsize if model.context_size is None else model.context_size + 1
        self._end = np.array([self.order, owner])
        model.begin(special_tokens)

    def first(self, *, sentence_start: bool) -> bytes:
        row = self._model.begin(self._special_tokens, sentence_start=sentence_start)
        return np.append(row, self._end).tobytes()

    def log10_prob(self, before: bytearray, word: str, after: bytearray) -> float:
        states = isinstance(before, State) and isinstance(after, State)
        index = self._ids.get(word) if states and isinstance(word, str) else None
        if index is None or before[-8:] != self._end[1:].tobytes():
            return math.nan
        row = np.frombuffer(before, np.int64)
        log_prob, rows = self._model.advance(row[None, :-2], np.array([index]), self._special_tokens)
        del row  # a bytearray has a fixed size as long as an array shows it
        after[:] = np.append(rows[0], self._end).tobytes()
        return float(log_prob[0]) / LN10


class Model:
    """A language model: `kenlm.Model`."""

    def __init__(self, path: str | bytes | os.PathLike[str], config: Config | None = None) -> None:
        """path: an ARPA file or a run folder.

        Raises OSError if it is missing or damaged, and for a model with a cache, which has no states.
        """
        name = os.fsdecode(path)
        try:
            loaded = load(name)
            model, ids, special_tokens = loaded.model, loaded.vocabulary.ids, loaded.vocabulary.special_tokens
            self._states: SingleStates | _OtherStates
            owner, changes = next(_OWNERS), loaded.form.lowercase or loaded.form.normalise is not None
            if isinstance(model, NgramModel):
                # Other words are <unk>, unless they are in the vocabulary once they are normalized.
                self._states = SingleStates(model.lookup, special_tokens, State, ids, owner, scores_oov=not changes)
            else:
                self._states = _OtherStates(model, special_tokens, ids, owner)
        except UserError as error:
            raise OSError(f"Cannot read model {name!r} ({error})") from None
        self.path = os.fsencode(Path(name).resolve())
        self._text_form = loaded.form
        self.order = self._states.order  # words that a score depends on, with the scored one
        self._ids, self._unk, self._owner = ids, special_tokens.unk, owner
        self._unk_word = loaded.vocabulary.words[self._unk]
        self._log10_prob = self._states.log10_prob

    def score(self, sentence: str | bytes, bos: bool = True, eos: bool = True) -> float:
        """Return log10 p of a sentence, its words separated by white space.

        bos: whether it begins after `<s>`. eos: whether `</s>` follows and is scored.
        """
        return sum(log_prob for log_prob, _, _ in self.full_scores(sentence, bos, eos))

    def full_scores(
        self, sentence: str | bytes, bos: bool = True, eos: bool = True
    ) -> Iterator[tuple[float, int, bool]]:
        """Yield the score of each word and, with eos, of the sentence's end."""
        state = State()
        state[:] = self._states.first(sentence_start=bos)
        for word in [*self._words(sentence), *([EOS] if eos else [])]:
            log_prob, length, oov = self.BaseFullScore(state, word, state)
            yield log_prob, length, oov

    def perplexity(self, sentence: str | bytes) -> float:
        """Return the perplexity of a sentence with its end."""
        return float(10.0 ** (-self.score(sentence) / (len(self._words(sentence)) + 1)))

    def BeginSentenceWrite(self, state: State) -> None:
        """Reset a state to the beginning of a sentence."""
        state[:] = self._states.first(sentence_start=True)

    def NullContextWrite(self, state: State) -> None:
        """Reset a state to no words."""
        state[:] = self._states.first(sentence_start=False)

    def BaseScore(self, in_state: State, word: str, out_state: State) -> float:
        """Return log10 p(word | in_state); out_state becomes the state after the word, and may be in_state itself."""
        log_prob = self._log10_prob(in_state, word, out_state)
        return log_prob if log_prob == log_prob else self._score_other(in_state, word, out_state)

    def BaseFullScore(self, in_state: State, word: str, out_state: State) -> FullScoreReturn:
        """Return the score of a word after in_state; out_state becomes the state after the word."""
        log_prob = self.BaseScore(in_state, word, out_state)
        return FullScoreReturn(log_prob, int.from_bytes(out_state[-16:-8], sys.byteorder), word not in self)

    def _score_other(self, in_state: State, word: str, out_state: State) -> float:
        """Score after a new state, and words that are not in the vocabulary as they stand.

        Raises TypeError for other arguments, BufferError if out_state cannot be written, and ValueError if in_state
        belongs to another model or none.
        """
        for what, value, kind in (("a state", in_state, State), ("a state", out_state, State), ("a word", word, str)):
            if not isinstance(value, kind):
                raise TypeError(f"{what} must be a {kind.__name__}; got {type(value).__name__}")
        if not in_state:
            self.NullContextWrite(in_state)
        elif int.from_bytes(in_state[-8:], sys.byteorder) != self._owner:
            raise ValueError("in_state is a state of another model")
        word = str.__str__(word)  # of a subclass, the text alone
        if word not in self._ids:
            word = self._text_form.normalized(word)
        if len(out_state) != len(in_state):
            self.NullContextWrite(out_state)  # which raises BufferError where the compiled call gives nan
        log_prob = self._log10_prob(in_state, word if word in self._ids else self._unk_word, out_state)
        if math.isnan(log_prob):
            raise ValueError("in_state is not a state as this model wrote it")
        return log_prob

    def _words(self, sentence: str | bytes) -> list[str]:
        text = sentence.decode() if isinstance(sentence, bytes) else sentence
        text = self._text_form.normalized(text)
        return list(text) if self._text_form.chars else split_words(text)

    def __contains__(self, word: str) -> bool:
        return self._ids.get(word, self._unk) != self._unk

    def __repr__(self) -> str:
        return f"<Model from {os.path.basename(os.fsdecode(self.path))}>"

    def __reduce__(self) -> tuple[type[Model], tuple[str]]:
        return type(self), (os.fsdecode(self.path),)


class LanguageModel(Model):
    """KenLM's older name of Model."""
