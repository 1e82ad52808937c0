"""What every language model of lmtool can do, count-based ones, networks and mixtures alike."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import SpecialTokens
from lmtool.system.arrays import FloatArray, IntArray

LN10 = math.log(10)  # log-probabilities of other tools' files are often decadic


@runtime_checkable
class LanguageModel(Protocol):
    """A conditional distribution over the next word, given the words before it.

    Legend of shapes: N contexts, C words in each (`context_size`), V vocabulary entries, K candidates. Contexts are
    int64 ids `[N, C]`, oldest word first, left-padded with `<s>` where the sentence (or the text) begins. All
    log-probabilities are natural logarithms in float64. `<s>` is never predicted: its entry in a distribution is the
    probability that a model reserves for types in no vocabulary, -inf for a model that reserves nothing. Ids may be of
    any integer type, in lists, too; for others, for another shape and for ids out of range lmtool's models raise
    ValueError. N may be 0.
    """

    @property
    def context_size(self) -> int:
        """C, the number of words before the predicted one that the model reads; the order of an n-gram model less 1."""

    @property
    def across_sentences(self) -> bool:
        """Whether contexts reach into the sentences before, `</s>` being among their words."""

    @property
    def normalised(self) -> bool:
        """Whether each distribution sums to one. If not, perplexities are not comparable with those of other models."""

    @property
    def dynamic(self) -> bool:
        """Whether the distributions change with the text that the model has read, as with a cache."""

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """log p(target | context), `[N]`, for contexts `[N, C]` and targets `[N]`."""

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """The log-probabilities of all words after contexts `[N, C]`, `[N, V]`; the log-sum-exp of each row is 0."""

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p(candidate | context), `[N, K]`, for contexts `[N, C]` and candidates `[N, K]`.

        They are not renormalised over the candidates.
        """


@runtime_checkable
class TextScorer(Protocol):
    """A language model that scores running text faster than context by context."""

    def log_prob_text(self, ids: npt.NDArray[Any], offsets: IntArray) -> FloatArray:
        """log p of each predicted token, `[N]`, of ids `[N]` whose sentences begin at offsets `[S + 1]`, N the last."""


@runtime_checkable
class Choosing(Protocol):
    """A language model that finds the most likely word faster than through the whole distribution."""

    def likeliest(self, contexts: IntArray) -> IntArray:
        """The most likely word after each of the contexts `[N, C]`, never `<s>`: `[N]`."""


@runtime_checkable
class Unnormalised(Protocol):
    """A language model that may have scores without the sum over all words, too."""

    def unnormalised(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Scores of targets `[N]` after contexts `[N, C]`, close to their log-probabilities: `[N]`.

        Raises UserError where the model has none.
        """

    def log_z(self, contexts: IntArray) -> FloatArray | None:
        """The log-sum-exp of the scores of all words after contexts `[N, C]`, `[N]`; None where the model has none."""


@runtime_checkable
class Ranking(Protocol):
    """A language model that may find the most likely words without computing the probabilities of all words."""

    def top(self, contexts: IntArray, k: int) -> tuple[IntArray, FloatArray]:
        """The k most likely words after contexts `[N, C]` and their log p, both `[N, k]`, most likely first.

        k is at most V - 1: `<s>` is never among them.
        """


@runtime_checkable
class DirectProbabilities(Protocol):
    """A language model that has the probabilities of all words faster than their logarithms."""

    def probabilities(self, contexts: IntArray) -> npt.NDArray[Any]:
        """p of all words after contexts `[N, C]`, `[N, V]`, in float32 or float64: exp of log_dist but for rounding."""


def probabilities(model: LanguageModel, contexts: IntArray) -> npt.NDArray[Any]:
    """A model's p of all words after contexts `[N, C]`, `[N, V]`, in float32 or float64."""
    if isinstance(model, DirectProbabilities):
        return model.probabilities(contexts)
    log_dist = model.log_dist(contexts)
    return np.exp(log_dist, out=log_dist)


class IncrementalScorer(Protocol):
    """A language model that is asked word by word, as decoders do, with states in place of contexts.

    A state is a row of `width` = W numbers, int64, that says all of what was read that matters for what comes: where
    rows are equal, all further log-probabilities are, so that a decoder may recombine such hypotheses.
    """

    width: int

    def initial_state(self, *, sentence_start: bool) -> IntArray:
        """The state `[W]` before a sentence's first word; sentence_start=False: where nothing before is known."""

    def advance(self, states: IntArray, words: IntArray) -> tuple[FloatArray, IntArray]:
        """Natural log p(word | state) `[N]` of words `[N]` after states `[N, W]`, and the states after them, `[N, W]`.

        After `</s>` a new sentence begins. Raises ValueError for other shapes and types, and for words out of range.
        """


@runtime_checkable
class Incremental(Protocol):
    """A language model with states of its own, which are smaller or quicker than contexts."""

    def incremental(self, marks: SpecialTokens) -> IncrementalScorer:
        """The model word by word."""
