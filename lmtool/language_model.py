"""What every language model of lmtool can do, counts and networks and mixtures of them alike."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@runtime_checkable
class LanguageModel(Protocol):
    """A conditional distribution over the next word, given the words before it.

    Legend: N contexts, C words in each (`context_size`), V vocabulary entries, K candidates.
    Contexts are ids `[N, C]`, oldest word first, left-padded with `<s>` where the sentence (or the
    text) begins. All log-probabilities are natural and float64. A row of `log_dist` has
    log-sum-exp 0. `<s>` is never predicted: its entry is what the model keeps for types that are in no
    vocabulary, -inf for a model that keeps nothing. A model with `across_sentences` reads contexts that go on into the
    sentences before, `</s>` among their words.
    """

    @property
    def context_size(self) -> int:
        """How many words before the predicted one the model reads (C, its order less one)."""

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """`log p(target | context)` for contexts `[N, C]` and targets `[N]`, as `[N]`."""

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """The whole distribution for each of the contexts `[N, C]`, as `[N, V]`."""

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """`log p(candidate | context)` for contexts `[N, C]` and candidates `[N, K]`, as `[N, K]`.

        Not renormalised over the candidates.
        """


def reads_across(model: LanguageModel) -> bool:
    """Whether the contexts that a model reads go on across the ends of sentences."""
    return bool(getattr(model, "across_sentences", False))


@runtime_checkable
class TextScorer(Protocol):
    """A language model that scores running text faster than token by token."""

    def log_prob_text(self, ids: npt.NDArray[Any], offsets: IntArray) -> FloatArray:
        """`log p` of each of the predicted tokens `[N]`, whose sentences begin at `offsets` `[S + 1]`, as `[N]`."""


@runtime_checkable
class Choosing(Protocol):
    """A language model that finds the likeliest words faster than by handing over whole distributions."""

    def likeliest(self, contexts: IntArray) -> IntArray:
        """The likeliest word after each of the contexts `[N, C]`, `<s>` left out, as `[N]`."""


@runtime_checkable
class Unnormalised(Protocol):
    """A language model that may also have scores without the sum over all words."""

    def unnormalised(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Scores of targets `[N]` after contexts `[N, C]`, near their log-probabilities, `[N]`.

        Raises UserError where the model has none.
        """

    def log_z(self, contexts: IntArray) -> FloatArray | None:
        """log of what the exponentials of the scores sum to after contexts `[N, C]`, `[N]`; None where they are not
        asked for.
        """


@runtime_checkable
class Ranking(Protocol):
    """A language model that may find the likeliest words without a look at all of them."""

    def top(self, contexts: IntArray, k: int) -> tuple[IntArray, FloatArray]:
        """The k likeliest words `[N, k]` after contexts `[N, C]`, likeliest first, and their log p `[N, k]`.

        k is at most V - 1: `<s>` is never among them.
        """
