"""The interface of KenLM's Python module: a program changes only its import, to `import lmtool.kenlm as kenlm`.

`Model` takes an ARPA file, compressed or not, or the run folder of any n-gram model, network or mixture. Numbers are
KenLM's: log10 probabilities; a word outside the vocabulary counts as `<unk>`.
"""

from __future__ import annotations

import ctypes
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
from lmtool.ngram.query.single_state import CompiledScore, SingleStates
from lmtool.runs.load import load
from lmtool.system.arrays import LN10, IntArray


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


class State:
    """What a model has read, as far as it affects later words: states are equal if all further scores are.

    A new state has no words. Hashable; it must not be written to while it is a key.
    """

    __slots__ = ("address", "numbers", "owner")

    def __init__(self) -> None:
        self.owner: _NgramStates | _OtherStates | None = None
        self.numbers: ctypes.Array[ctypes.c_int64] | IntArray | None = None
        self.address = 0

    def _key(self) -> bytes:
        return b"" if self.owner is None else self.owner.key(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._key() == other._key()

    def __lt__(self, other: State) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __copy__(self) -> State:
        copy = State()
        if self.owner is not None:
            self.owner.copy(self, copy)
        return copy

    def __deepcopy__(self, memo: dict[int, object]) -> State:
        return self.__copy__()


class _NgramStates(SingleStates):
    """The states of an n-gram model: begun, compared, copied, and led from one to the next by a word."""

    def __init__(self, model: NgramModel, special_tokens: SpecialTokens) -> None:
        SingleStates.__init__(self, model.lookup)
        self._bos = special_tokens.bos
        self._inner = 8 * (self.order - 1)  # bytes without the matched length

    def begin(self, state: State, *, sentence_start: bool) -> None:
        """Reset a state to the beginning of a sentence, or to no words."""
        self._renew(state)
        if sentence_start and self.order > 1:
            state.numbers[0] = self._bos  # type: ignore[index]
        self.use_hash()

    def _renew(self, state: State) -> None:
        numbers = self.new_state()
        state.owner, state.numbers, state.address = self, numbers, ctypes.addressof(numbers)

    def key(self, state: State) -> bytes:
        """Return the bytes by which states of this model are compared."""
        return bytes(state.numbers)[: self._inner]  # type: ignore[arg-type]

    def copy(self, state: State, copy: State) -> None:
        """Make `copy` equal to a state."""
        self._renew(copy)
        ctypes.memmove(copy.address, state.address, self._inner + 8)

    def score(self, state: State, word: int, after: State) -> float:
        """Return log10 p(word | state); `after` becomes the state after the word, and may be the same object."""
        return self.log10_prob(self.table, state.address, word, after.address)

    def matched(self, after: State) -> int:
        """Return the length of the longest n-gram of the model that ended in the last word of a state."""
        return int(after.numbers[-1])  # type: ignore[index]


class _OtherStates:
    """The states of any other model, with the methods of _NgramStates: rows of LanguageModel.advance."""

    def __init__(self, model: Contract, special_tokens: SpecialTokens) -> None:
        """Raises UserError for a model with a cache, which has no states."""
        self._model, self._special_tokens = model, special_tokens
        self.order = sys.maxsize if model.context_size is None else model.context_size + 1
        model.begin(special_tokens)

    def begin(self, state: State, *, sentence_start: bool) -> None:
        state.owner = self
        state.numbers = self._model.begin(self._special_tokens, sentence_start=sentence_start)

    def key(self, state: State) -> bytes:
        return np.asarray(state.numbers).tobytes()

    def copy(self, state: State, copy: State) -> None:
        copy.owner, copy.numbers = self, state.numbers

    def score(self, state: State, word: int, after: State) -> float:
        states = np.asarray(state.numbers)[None]
        log_prob, rows = self._model.advance(states, np.array([word]), self._special_tokens)
        after.numbers = rows[0]
        return float(log_prob[0]) / LN10

    def matched(self, after: State) -> int:
        return self.order


class Model:
    """A language model: `kenlm.Model`."""

    def __init__(self, path: str | bytes | os.PathLike[str], config: Config | None = None) -> None:
        """path: an ARPA file or a run folder.

        Raises OSError if it is missing or damaged, and for a model with a cache, which has no states.
        """
        name = os.fsdecode(path)
        try:
            loaded = load(name)
            model, special_tokens = loaded.model, loaded.vocabulary.special_tokens
            self._states: _NgramStates | _OtherStates
            if isinstance(model, NgramModel):
                self._states = _NgramStates(model, special_tokens)
            else:
                self._states = _OtherStates(model, special_tokens)
        except UserError as error:
            raise OSError(f"Cannot read model {name!r} ({error})") from None
        self.path = os.fsencode(Path(name).resolve())
        self._text_form = loaded.form
        self.order = self._states.order  # words that a score depends on, with the scored one
        self._ids, self._unk = loaded.vocabulary.ids, special_tokens.unk
        self._compiled: CompiledScore | None = None
        if isinstance(self._states, _NgramStates):
            self._compiled, self._table = self._states.log10_prob, self._states.table

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
        self._states.begin(state, sentence_start=bos)
        for word in [*self._words(sentence), *([EOS] if eos else [])]:
            log_prob, length, oov = self.BaseFullScore(state, word, state)
            yield log_prob, length, oov

    def perplexity(self, sentence: str | bytes) -> float:
        """Return the perplexity of a sentence with its end."""
        return float(10.0 ** (-self.score(sentence) / (len(self._words(sentence)) + 1)))

    def BeginSentenceWrite(self, state: State) -> None:
        """Reset a state to the beginning of a sentence."""
        self._states.begin(state, sentence_start=True)

    def NullContextWrite(self, state: State) -> None:
        """Reset a state to no words."""
        self._states.begin(state, sentence_start=False)

    def BaseScore(self, in_state: State, word: str, out_state: State) -> float:
        """Return log10 p(word | in_state); out_state becomes the state after the word, and may be in_state itself."""
        states = self._states
        if in_state.owner is not states or out_state.owner is not states:
            self._adopt(in_state, out_state)
        try:
            index = self._ids[word]
        except KeyError:
            index = self._unknown(word)
        if self._compiled is None:
            return states.score(in_state, index, out_state)
        # What states.score does, with one call less: the function takes little longer than a call.
        return self._compiled(self._table, in_state.address, index, out_state.address)

    def BaseFullScore(self, in_state: State, word: str, out_state: State) -> FullScoreReturn:
        """Return the score of a word after in_state; out_state becomes the state after the word."""
        log_prob = self.BaseScore(in_state, word, out_state)
        return FullScoreReturn(log_prob, self._states.matched(out_state), word not in self)

    def _adopt(self, in_state: State, out_state: State) -> None:
        """Make new states belong to this model. Raises ValueError if in_state belongs to another model."""
        if in_state.owner is None:
            self.NullContextWrite(in_state)
        elif in_state.owner is not self._states:
            raise ValueError("in_state is a state of another model")
        if out_state.owner is not self._states:
            self.NullContextWrite(out_state)

    def _unknown(self, word: object) -> int:
        if not isinstance(word, str):
            raise TypeError(f"a word must be a str; got {type(word).__name__}")
        return self._ids.get(self._text_form.normalized(word), self._unk)

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
