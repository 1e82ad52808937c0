"""The interface of KenLM's Python module: a program changes only its import, to `import lmtool.kenlm as kenlm`.

`Model` takes an ARPA file, compressed or not, or the run folder of any n-gram model, network or mixture. Numbers are
KenLM's: log10 probabilities; a word outside the vocabulary counts as `<unk>`. The run's data say what is a token.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lmtool.data.vocabulary import BOS, EOS, SpecialTokens
from lmtool.errors import UserError
from lmtool.evaluation.metrics import gives_unk
from lmtool.language_model import LanguageModel as Contract
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query.single_state import SingleStates
from lmtool.runs.load import load
from lmtool.system.arrays import LN10

log = logging.getLogger(__name__)

MAX_OTHERS = 1 << 18  # words outside the vocabulary whose ids are kept
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

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from lmtool import kenlm
    >>> model, state = kenlm.Model(run.folder), kenlm.State()
    >>> model.BaseFullScore(state, "bird", state).oov
    True
    """

    log_prob: float
    ngram_length: int
    oov: bool


class State(bytearray):
    """What a model has read, as far as it affects later words: states are equal if all further scores are.

    A new state has no words. Hashable; it must not be written to while it is a key.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from lmtool import kenlm
    >>> model, before, after = kenlm.Model(run.folder), kenlm.State(), kenlm.State()
    >>> model.BeginSentenceWrite(before)
    >>> round(model.BaseScore(before, "the", after), 2)
    -0.03
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
        return -math.inf if index == self._special_tokens.bos else float(log_prob[0]) / LN10


class Model:
    """A language model: `kenlm.Model`.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from lmtool import kenlm
    >>> model = kenlm.Model(run.folder)
    >>> round(model.score("the cat sat"), 2), round(model.perplexity("the cat sat"), 2)
    (-0.48, 1.32)
    >>> [(round(log10, 2), length, oov) for log10, length, oov in model.full_scores("the bird")]
    [(-0.03, 2, False), (-2.51, 1, True), (-0.62, 1, False)]
    """

    def __init__(
        self, path: str | bytes | os.PathLike[str], config: Config | None = None, *, unk_log10: float = -100.0
    ) -> None:
        """path: an ARPA file or a run folder. unk_log10: log10 p, before back-off weights, of words that have
        probability 0: those outside the vocabulary of a model without `<unk>`, and `<s>`; KenLM's is -100.

        Raises OSError if it is missing or damaged, and for a model with a cache, which has no states.
        """
        if not unk_log10 <= 0:
            raise ValueError(f"unk_log10={unk_log10}: must be a number, 0 or less")
        name = os.fsdecode(path)
        try:
            loaded = load(name)
            model, ids, special_tokens = loaded.model, loaded.vocabulary.ids, loaded.vocabulary.special_tokens
            self._states: SingleStates | _OtherStates
            self._words = ids  # what the compiled call looks up: also other words, once they were normalized
            owner, changes = next(_OWNERS), loaded.form.rules.changes or loaded.form.tags
            if isinstance(model, NgramModel):
                # Other words are <unk>, unless they are in the vocabulary once they are normalized.
                lookup, scores_oov = model.with_floor(unk_log10 * LN10).lookup, not (changes or loaded.form.chars)
                self._words = dict(ids) if changes and not loaded.form.chars else ids
                self._states = SingleStates(lookup, special_tokens, State, self._words, owner, scores_oov=scores_oov)
            else:
                self._states = _OtherStates(model, special_tokens, ids, owner)
        except UserError as error:
            raise OSError(f"Cannot read model {name!r} ({error})") from None
        if not gives_unk(model, loaded.vocabulary):
            log.warning("note: %s gives OOVs probability 0: here unk_log10=%g and back-off weights", name, unk_log10)
        self.path = os.fsencode(Path(name).resolve())
        self._text_form = loaded.form
        self.order = self._states.order  # words that a score depends on, with the scored one
        self._ids, self._unk, self._owner, self._unk_log10 = ids, special_tokens.unk, owner, unk_log10
        self._unk_word = loaded.vocabulary.words[self._unk]
        # Words that have pieces are left to _score_other, also if a piece has the name of one.
        self._log10_prob = self._states.log10_prob if loaded.form.subwords is None else (lambda *_: math.nan)

    def score(self, sentence: str | bytes, bos: bool = True, eos: bool = True) -> float:
        """Return log10 p of a sentence, its words separated by white space.

        bos: whether it begins after `<s>`. eos: whether `</s>` follows and is scored, if the model has it.
        """
        return sum(log_prob for log_prob, _, _ in self.full_scores(sentence, bos, eos))

    def full_scores(
        self, sentence: str | bytes, bos: bool = True, eos: bool = True
    ) -> Iterator[tuple[float, int, bool]]:
        """Yield the score of each word, letter or piece, and, with eos, of the sentence's end; `<s>` is an OOV."""
        state = State()
        state[:] = self._states.first(sentence_start=bos)
        for token in [*self._tokens(sentence), *([EOS] if eos and EOS in self._ids else [])]:
            is_oov = token == BOS or self._ids.get(token, self._unk) == self._unk
            log_prob = self._states.log10_prob(state, self._unk_word if is_oov else token, state)
            yield self._floored(log_prob), int.from_bytes(state[-16:-8], sys.byteorder), is_oov

    def perplexity(self, sentence: str | bytes) -> float:
        """Return the perplexity of a sentence with its end, per token."""
        scores = [log_prob for log_prob, _, _ in self.full_scores(sentence)]
        log10 = -sum(scores) / max(len(scores), 1)
        return 10.0**log10 if log10 < sys.float_info.max_10_exp else math.inf

    def BeginSentenceWrite(self, state: State) -> None:
        """Reset a state to the beginning of a sentence."""
        state[:] = self._states.first(sentence_start=True)

    def NullContextWrite(self, state: State) -> None:
        """Reset a state to no words."""
        state[:] = self._states.first(sentence_start=False)

    def BaseScore(self, in_state: State, word: str, out_state: State) -> float:
        """Return log10 p(word | in_state); out_state becomes the state after the word, and may be in_state itself.

        A word has the sum of its pieces' scores; of a model of letters it is one letter. `<s>` begins a sentence.
        """
        log_prob = self._log10_prob(in_state, word, out_state)
        return self._floored(log_prob) if log_prob == log_prob else self._score_other(in_state, word, out_state)

    def BaseFullScore(self, in_state: State, word: str, out_state: State) -> FullScoreReturn:
        """Return the score of a word after in_state; out_state becomes the state after the word."""
        log_prob = self.BaseScore(in_state, word, out_state)
        return FullScoreReturn(log_prob, int.from_bytes(out_state[-16:-8], sys.byteorder), word not in self)

    def _score_other(self, in_state: State, word: str, out_state: State) -> float:
        """Score after a new state, and words that are not in the vocabulary as they stand, or have pieces.

        Raises TypeError for other arguments, BufferError if out_state cannot be written, and ValueError if in_state
        belongs to another model or none, and for several letters as a word of a model of letters.
        """
        for what, value, kind in (("a state", in_state, State), ("a state", out_state, State), ("a word", word, str)):
            if not isinstance(value, kind):
                raise TypeError(f"{what} must be a {kind.__name__}; got {type(value).__name__}")
        if not in_state:
            self.NullContextWrite(in_state)
        elif int.from_bytes(in_state[-8:], sys.byteorder) != self._owner:
            raise ValueError("in_state is a state of another model")
        word = str.__str__(word)  # of a subclass, the text alone
        tokens = self._tokens_of_word(word)
        if (
            self._text_form.chars
            and tokens[0] not in self._ids
            and len(self._text_form.split_rewritten(tokens[0])) != 1
        ):
            raise ValueError(f"{word!r} is not one letter: this model is of letters; give them one by one")
        if (
            self._words is not self._ids
            and self._text_form.subwords is None
            and len(self._words) < len(self._ids) + MAX_OTHERS
        ):
            self._words[word] = self._ids.get(tokens[0], self._unk)
        if len(out_state) != len(in_state):
            self.NullContextWrite(out_state)  # which raises BufferError where the compiled call gives nan
        total, before = 0.0, in_state
        for token in tokens:
            log_prob = self._states.log10_prob(before, token if token in self._ids else self._unk_word, out_state)
            if math.isnan(log_prob):
                raise ValueError("in_state is not a state as this model wrote it")
            total, before = total + self._floored(log_prob), out_state
        return total

    def _floored(self, log_prob: float) -> float:
        return log_prob if log_prob > -math.inf else self._unk_log10

    def _tokens(self, sentence: str | bytes) -> list[str]:
        text = self._text_form.rules(sentence.decode() if isinstance(sentence, bytes) else sentence)
        words = self._text_form.split_rewritten(text)
        return words if self._text_form.subwords is None else [t for word in words for t in self._tokens_of_word(word)]

    def _tokens_of_word(self, word: str) -> list[str]:
        if self._text_form.subwords is not None and word not in (BOS, EOS):
            return self._text_form.tokens([self._text_form.rewrite_word(word)])
        return [word if word in self._ids else self._text_form.rewrite_word(word)]

    def __contains__(self, word: str) -> bool:
        tokens = self._tokens_of_word(word) if isinstance(word, str) else []
        return bool(tokens) and all(self._ids.get(token, self._unk) != self._unk for token in tokens)

    def __repr__(self) -> str:
        return f"<Model from {os.path.basename(os.fsdecode(self.path))}>"

    def __reduce__(self) -> tuple[partial[Model], tuple[str]]:
        return partial(type(self), unk_log10=self._unk_log10), (os.fsdecode(self.path),)


class LanguageModel(Model):
    """KenLM's older name of Model."""
