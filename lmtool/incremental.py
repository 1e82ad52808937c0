"""Language models word by word, for decoders: each hypothesis has a state, and a word leads to the next one.

Models that are Incremental have states of their own; the state of any other one is its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.language_model import Incremental, IncrementalScorer, LanguageModel
from lmtool.system.arrays import FloatArray, IntArray, whole_numbers


@dataclass(frozen=True, slots=True)
class State:
    """One hypothesis: what a model has read, as far as it matters. Hashable; equal where all that follows is.

    numbers: its row of IncrementalScorer, as bytes. scorer: of the model.
    """

    numbers: bytes
    scorer: IncrementalScorer = field(repr=False)

    def __len__(self) -> int:
        """The size of the state in bytes."""
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class States:
    """N hypotheses at once. states[i] is one State; states[[2, 2, 0]] and slices are States.

    rows: int64 `[N, W]` of IncrementalScorer. scorer: of the model.
    """

    rows: IntArray
    scorer: IncrementalScorer = field(repr=False)

    @classmethod
    def of(cls, states: Sequence[State]) -> States:
        """The states of a list, which must not be empty and of one model; else ValueError."""
        if not all(isinstance(state, State) for state in states):
            raise ValueError("States.of: must be a list of states, as TextModel.begin and advance return them")
        scorers = {id(state.scorer): state.scorer for state in states}
        if len(scorers) != 1:
            raise ValueError(f"States.of: states must be of one model; got {len(states)} of {len(scorers)} models")
        (scorer,) = scorers.values()
        rows = np.frombuffer(b"".join(state.numbers for state in states), dtype=np.int64)
        return cls(rows.reshape(len(states), scorer.width), scorer)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> State: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer | np.bool_]) -> States: ...

    def __getitem__(self, index: int | slice | Sequence[int] | npt.NDArray[np.integer | np.bool_]) -> State | States:
        if isinstance(index, int | np.integer):
            return State(self.rows[index].tobytes(), self.scorer)
        return States(self.rows[index], self.scorer)

    def groups(self) -> IntArray:
        """Numbers `[N]` from 0 on, the same for equal states: hypotheses that a decoder may recombine."""
        if self.rows.shape[1] == 0:
            return np.zeros(len(self), dtype=np.int64)
        return np.unique(self.rows, axis=0, return_inverse=True)[1].reshape(-1)


def incremental_scorer(model: LanguageModel, marks: SpecialTokens) -> IncrementalScorer:
    """The model word by word. Raises UserError for one with a cache, whose future depends on all that it has read."""
    if model.dynamic:
        raise UserError("a model with a cache has no states: it depends on all that it has read; take its members")
    return model.incremental(marks) if isinstance(model, Incremental) else ContextScorer(model, marks)


class ContextScorer:
    """States are contexts: the last C words. What hypotheses with equal states share is computed once."""

    def __init__(self, model: LanguageModel, marks: SpecialTokens) -> None:
        """marks: of the model's vocabulary."""
        self.model = model
        self.marks = marks
        self.width = model.context_size
        self._words_end_sentences = marks.eos is not None and not model.across_sentences

    def initial_state(self, *, sentence_start: bool) -> IntArray:
        """C times `<s>`; `<unk>` where nothing before is known."""
        return np.full(self.width, self.marks.bos if sentence_start else self.marks.unk, dtype=np.int64)

    def advance(self, states: IntArray, words: IntArray) -> tuple[FloatArray, IntArray]:
        """As IncrementalScorer has it."""
        words = whole_numbers("advance: words", words, (len(states),), below=self.marks.bos + 1)
        contexts, place = np.unique(states, axis=0, return_inverse=True)
        if len(contexts) == len(states):
            log_prob = self.model.log_prob(states, words)
        else:
            log_prob = self._of_shared(contexts, place.reshape(-1), words)
        after = np.concatenate([states, words[:, None]], axis=1)[:, 1:]
        if self._words_end_sentences:
            after[words == self.marks.eos] = self.initial_state(sentence_start=True)
        return log_prob, after

    def _of_shared(self, contexts: IntArray, place: IntArray, words: IntArray) -> FloatArray:
        """log p of words `[N]` after the contexts `[U, C]` at place `[N]`: each context is encoded once."""
        order = np.argsort(place, kind="stable")
        sizes = np.bincount(place, minlength=len(contexts))
        column = np.empty(len(words), dtype=np.int64)  # of each word among the candidates of its context
        column[order] = np.arange(len(words)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        candidates = np.zeros((len(contexts), int(sizes.max())), dtype=np.int64)
        candidates[place, column] = words
        log_prob: FloatArray = self.model.log_prob_candidates(contexts, candidates)[place, column]
        return log_prob
