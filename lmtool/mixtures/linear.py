"""Linear mixtures of language models (Jelinek & Mercer 1980): p(w|h) = sum_k weight_k p_k(w|h)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.data.corpus import Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.evaluation.score import Scored
from lmtool.incremental import incremental_scorer
from lmtool.language_model import IncrementalScorer, LanguageModel, probabilities
from lmtool.system.arrays import FloatArray, IntArray, as_array, whole_numbers

TOLERANCE = 1e-9  # nats per token by which fitted weights may fall short of the optimum


@dataclass(frozen=True, slots=True)
class Fit:
    """Mixture weights `[M]`, and how close to the optimum they are.

    gap: at most so many nats per token the optimum is better. The mean log-likelihood is concave in the weights, so
    that no other ones exceed it by more than log max_k mean_t p_k(t)/p(t).
    """

    weights: FloatArray
    iterations: int
    gap: float


def fit_weights(log_prob: FloatArray, *, tolerance: float = TOLERANCE, iterations: int = 20_000) -> Fit:
    """The weights that maximise the likelihood of held-out tokens, by EM (Dempster, Laird & Rubin 1977).

    log_prob: natural, `[M, N]`, of each model and token. Stops where the gap of Fit is at most `tolerance`. Raises
    UserError where a token has probability zero under every model.
    """
    members, tokens = log_prob.shape
    largest = log_prob.max(axis=0)
    if np.isneginf(largest).any():
        where = int(np.isneginf(largest).argmax())
        raise UserError(f"token {where} of fit_split has probability zero under every run: no weights fit it")
    relative = np.exp(log_prob - largest)  # [M, N], 1 for the model that gives the token most
    weights = np.full(members, 1 / members)
    gap, done = np.inf, 0
    while gap > tolerance and done < iterations:
        done += 1
        # E and M step in one: the mean responsibility of model k is weight_k mean_t p_k(t)/p(t).
        ratio = relative @ (1 / (weights @ relative)) / tokens  # [M]
        gap = float(np.log(ratio.max()))
        if gap > tolerance:
            weights = weights * ratio
            weights /= weights.sum()
    return Fit(weights, done, max(gap, 0.0))


def mix(log_prob: FloatArray, weights: FloatArray) -> FloatArray:
    """log sum_k weight_k p_k over the first axis: `[...]` from log p `[M, ...]` and weights `[M]`."""
    with np.errstate(divide="ignore"):
        weighted = log_prob + np.log(weights).reshape(-1, *[1] * (log_prob.ndim - 1))
    mixed: FloatArray = np.logaddexp.reduce(weighted, axis=0)
    return mixed


class Ends(NamedTuple):
    """The ids of `</s>` and `<s>`."""

    eos: int
    bos: int


def contexts_of(member: LanguageModel, contexts: IntArray, ends: Ends | None = None) -> IntArray:
    """The part of contexts `[N, C]` that a member reads, `[N, its context_size]`.

    ends: for contexts that may reach across sentences; a member that does not read across them has `<s>` in place of
    all that stands before its sentence.
    """
    last = contexts[:, contexts.shape[1] - member.context_size :]
    if ends is None or member.across_sentences:
        return last
    before = np.logical_or.accumulate((last == ends.eos)[:, ::-1], axis=1)[:, ::-1]
    return np.where(before, ends.bos, last)


def longest_context(members: list[LanguageModel]) -> int:
    """The largest context_size of the members."""
    return max(member.context_size for member in members)


def checked_weights(where: str, weights: FloatArray, shape: tuple[int, ...], *, sum_to_one: bool = True) -> FloatArray:
    """Weights in float64. Raises ValueError, naming `where`, unless they have this shape, are finite and 0 or more, and
    sum to one over the last axis.
    """
    array = as_array(where, weights)
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise ValueError(f"{where} must be {list(shape)} numbers; got {array.dtype} {list(array.shape)}")
    array = array.astype(np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{where} must be finite and 0 or more; got {array.tolist()}")
    if sum_to_one and not np.allclose(array.sum(axis=-1), 1, rtol=0, atol=1e-6):
        raise ValueError(f"{where} must sum to one; got a sum of {array.sum(axis=-1).tolist()}")
    return array


class Members:
    """M language models with weights. ends: where some of them read across sentences.

    A mixture of them raises ValueError for contexts and words of another shape, type or range.
    """

    def __init__(self, members: list[LanguageModel], weights: FloatArray, ends: Ends | None = None) -> None:
        """Raises ValueError for weights that are not as many as the members, finite and 0 or more."""
        if not members:
            raise ValueError(f"{type(self).__name__}: members must be one language model or more")
        self.members = members
        self.weights = self._checked_weights(weights)
        self.ends = ends

    def _checked_weights(self, weights: FloatArray) -> FloatArray:
        return checked_weights(f"{type(self).__name__}: weights", weights, (len(self.members),))

    @property
    def context_size(self) -> int:
        """The longest of the members' contexts."""
        return longest_context(self.members)

    @property
    def across_sentences(self) -> bool:
        """Whether a member reads across sentences."""
        return any(member.across_sentences for member in self.members)

    @property
    def normalised(self) -> bool:
        """Whether each distribution sums to one, as it does where all members' do."""
        return all(member.normalised for member in self.members)

    @property
    def dynamic(self) -> bool:
        """Whether a member changes with the text that it reads."""
        return any(member.dynamic for member in self.members)

    def _contexts(self, method: str, contexts: IntArray) -> IntArray:
        """Contexts `[N, C]`; whether their ids are in the vocabulary is for the members to see."""
        return whole_numbers(f"{type(self).__name__}.{method}: contexts", contexts, ("N", self.context_size))

    def member_log_probs(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Each member's log p of targets `[N]` after contexts `[N, C]`: `[M, N]`."""
        contexts = self._contexts("log_prob", contexts)
        return np.stack([member.log_prob(contexts_of(member, contexts, self.ends), targets) for member in self.members])

    def member_dists(self, contexts: IntArray) -> FloatArray:
        """Each member's log p of all words after contexts `[N, C]`: `[M, N, V]`."""
        return member_dists(self.members, self._contexts("log_dist", contexts), self.ends)

    def member_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Each member's log p of candidates `[N, K]` after contexts `[N, C]`: `[M, N, K]`."""
        contexts = self._contexts("log_prob_candidates", contexts)
        return np.stack(
            [
                member.log_prob_candidates(contexts_of(member, contexts, self.ends), candidates)
                for member in self.members
            ]
        )


def member_dists(members: list[LanguageModel], contexts: IntArray, ends: Ends | None) -> FloatArray:
    """Each member's log p of all words after contexts `[N, C]`: `[M, N, V]`. ends: as contexts_of takes them."""
    return np.stack([member.log_dist(contexts_of(member, contexts, ends)) for member in members])


class Mixture(Members):
    """A linear mixture with weights `[M]`, itself a language model."""

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """log p(target | context), `[N]`, for contexts `[N, C]` and targets `[N]`."""
        return mix(self.member_log_probs(contexts, targets), self.weights)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """The log-probabilities of all words after contexts `[N, C]`, `[N, V]`."""
        return mix(self.member_dists(contexts), self.weights)

    def probabilities(self, contexts: IntArray) -> npt.NDArray[Any]:
        """p of all words after contexts `[N, C]`, `[N, V]`; float32 where all members' are."""
        contexts = self._contexts("probabilities", contexts)
        shares = (
            weight * probabilities(member, contexts_of(member, contexts, self.ends))
            for member, weight in zip(self.members, self.weights.tolist(), strict=True)
        )
        return functools.reduce(np.add, shares)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p(candidate | context), `[N, K]`, for contexts `[N, C]` and candidates `[N, K]`."""
        return mix(self.member_candidates(contexts, candidates), self.weights)

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """log p of each token of a split, `[N]`. scored: returns those of a member."""
        return mix(np.stack([scored(member, split) for member in self.members]), self.weights)

    def incremental(self, marks: SpecialTokens) -> MixtureScorer:
        """The mixture word by word, for decoders."""
        return MixtureScorer([incremental_scorer(member, marks) for member in self.members], self.weights)


class MixtureScorer:
    """A linear mixture: a state is the states of the members, side by side."""

    def __init__(self, members: list[IncrementalScorer], weights: FloatArray) -> None:
        """weights: `[M]`."""
        self.members = members
        self.weights = weights
        self.width = sum(member.width for member in members)

    def initial_state(self, *, sentence_start: bool) -> IntArray:
        """The members' initial states, side by side."""
        return np.concatenate([member.initial_state(sentence_start=sentence_start) for member in self.members])

    def advance(self, states: IntArray, words: IntArray) -> tuple[FloatArray, IntArray]:
        """As IncrementalScorer has it."""
        cuts = np.cumsum([member.width for member in self.members])[:-1]
        parts = zip(self.members, np.split(states, cuts, axis=1), strict=True)
        log_probs, after = zip(*(member.advance(part, words) for member, part in parts), strict=True)
        return mix(np.stack(log_probs), self.weights), np.concatenate(after, axis=1)
