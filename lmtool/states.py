"""The states of hypotheses, for decoders that query a model word by word: a word leads from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from lmtool.language_model import LanguageModel
from lmtool.system.arrays import IntArray


@dataclass(frozen=True, slots=True)
class State:
    """One hypothesis: what a model has read, as far as it affects later words.

    Hashable; states are equal if all further log-probabilities are. numbers: a row of LanguageModel.advance, as bytes.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> model = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell").model
    >>> log_p, after_the = model.advance(model.begin(), "the")
    >>> round(log_p, 2), len(after_the)
    (-0.07, 8)
    """

    numbers: bytes
    model: LanguageModel = field(repr=False)

    def __len__(self) -> int:
        """Return the size of the state in bytes."""
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class States:
    """N hypotheses. states[i] is one State; states[[2, 2, 0]] and slices are States.

    rows: int64 `[N, W]`, as in LanguageModel.advance.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> model = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell").model
    >>> log_p, states = model.advance([model.begin(), model.begin()], ["cat", "dog"])
    >>> log_p, states = model.advance(states, ["sat", "sat"])
    >>> states.groups().tolist(), states[0] == states[1]  # a bigram model need not tell them apart
    ([0, 0], True)
    """

    rows: IntArray
    model: LanguageModel = field(repr=False)

    @classmethod
    def of(cls, states: Sequence[State]) -> States:
        """Return the states of a list. Raises ValueError if it is empty or not of one model."""
        if not isinstance(states, Sequence) or not all([isinstance(state, State) for state in states]):
            raise ValueError("States.of: must be a list of states, as TextModel.begin and advance return them")
        models = {id(state.model): state.model for state in states}
        if len(models) != 1:
            raise ValueError(f"States.of: states must be of one model; got {len(states)} of {len(models)} models")
        (model,) = models.values()
        # Writable, as those of `advance` are: compiled functions would be compiled again for arrays that are not.
        rows = np.frombuffer(bytearray().join([state.numbers for state in states]), dtype=np.int64)
        return cls(rows.reshape(len(states), model.state_size), model)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> State: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer | np.bool_]) -> States: ...

    def __getitem__(self, index: int | slice | Sequence[int] | npt.NDArray[np.integer | np.bool_]) -> State | States:
        if isinstance(index, int | np.integer):
            return State(self.rows[index].tobytes(), self.model)
        return States(self.rows[index], self.model)

    def groups(self) -> IntArray:
        """Return numbers `[N]` from 0 on, equal for equal states: hypotheses that a decoder may recombine."""
        if self.rows.shape[1] == 0:
            return np.zeros(len(self), dtype=np.int64)
        return np.unique(self.rows, axis=0, return_inverse=True)[1].reshape(-1)
