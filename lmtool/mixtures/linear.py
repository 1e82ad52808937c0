"""Linear mixtures of language models (Jelinek & Mercer 1980): p(w|h) = sum_k weight_k p_k(w|h).

The weights may depend on how much of the context an n-gram model has seen, p(w|h) = sum_k weight_c(h),k p_k(w|h), as in
deleted interpolation. The class c(h) is the length of the longest end of the context that the n-gram model has seen in
training. It depends on the context alone, so that each distribution sums to one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.cloze import unk_sharers
from lmtool.data.split import Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.evaluation.metrics import log_softmax
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import Array, FloatArray, IntArray, as_array

TOLERANCE = 1e-9  # nats per token by which fitted weights may fall short of the optimum


@dataclass(frozen=True, slots=True)
class Fit:
    """Mixture weights `[M]`, or `[K, M]` of K classes.

    gap: nats per token by which the optimum may be better. value: the mean log-likelihood; nan if it was not computed.
    """

    weights: FloatArray
    iterations: int
    gap: float
    value: float = math.nan


def fit_weights(
    log_prob: FloatArray,
    log_total: FloatArray | None = None,
    *,
    tolerance: float = TOLERANCE,
    iterations: int = 20_000,
) -> Fit:
    """Return the weights that maximize the likelihood of held-out tokens, by EM (Dempster, Laird & Rubin 1977).

    log_prob: natural log-probabilities `[M, N]` of each model and token. Stops when the gap is at most `tolerance`: the
    mean log-likelihood is concave in the weights, so no other weights exceed it by more than log max_k mean_t
    p_k(t)/p(t).

    log_total: log of sums Z_k(t) `[M, N]` of each model, e.g. of p over the candidates of a question: the weights then
    maximize the mean of log sum_k weight_k p_k(t) - log sum_k weight_k Z_k(t). The second logarithm is at most its
    tangent, so that a step of EM has a closed form and does not lower the likelihood. It is no longer concave: the
    weights are a stationary point, reached from equal ones, where the gap is 0.
    """
    members, tokens = log_prob.shape
    largest = log_prob.max(axis=0)
    if np.isneginf(largest).any():
        where = int(np.isneginf(largest).argmax())
        raise UserError(f"token {where} of fit_split has probability zero under every run: no weights fit it")
    relative = np.exp(log_prob - largest)  # [M, N], 1 for the model that gives the token the highest probability
    totals = np.ones((members, 1)) if log_total is None else np.exp(log_total - log_total.max(axis=0))
    weights = np.full(members, 1 / members)
    gap, done = np.inf, 0
    while gap > tolerance and done < iterations:
        done += 1
        # E and M step in one: the mean responsibility of model k is weight_k mean_t p_k(t)/p(t).
        ratio = relative @ (1 / (weights @ relative)) / tokens  # [M]
        ratio /= (totals / (weights @ totals)).mean(axis=1)
        gap = float(np.log(ratio.max()))
        if gap > tolerance:
            weights = weights * ratio
            weights /= weights.sum()
    return Fit(weights, done, max(gap, 0.0))


def mix(log_prob: FloatArray, weights: FloatArray) -> FloatArray:
    """Return log sum_k weight_k p_k, `[N, ...]`, from log p `[M, N, ...]` and weights `[M]` or `[M, N]`."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    mixed: FloatArray = np.logaddexp.reduce(
        log_prob + log_weights.reshape(*weights.shape, *[1] * (log_prob.ndim - weights.ndim)), axis=0
    )
    return mixed


def fit_class_weights(log_prob: FloatArray, classes: IntArray, count: int) -> Fit:
    """Return weights `[K, M]` by EM, separately for each of K = `count` classes.

    log_prob: natural, `[M, N]`. classes: `[N]`. A class without tokens gets the weights fitted on all tokens.
    """
    whole = fit_weights(log_prob)
    weights = np.tile(whole.weights, (count, 1))
    tokens = np.bincount(classes, minlength=count)
    iterations, gap = whole.iterations, 0.0
    for k in np.flatnonzero(tokens).tolist():
        fit = fit_weights(log_prob[:, classes == k])
        weights[k] = fit.weights
        iterations = max(iterations, fit.iterations)
        gap += fit.gap * tokens[k] / len(classes)
    return Fit(weights, iterations, gap)


def classes_of_text(classifier: LanguageModel, text: Split, first: int = 0, last: int | None = None) -> IntArray:
    """Return the classes of the contexts of the tokens `first` to `last` - 1, by default of all: `[last - first]`."""
    return classifier.map_text(lambda contexts, _: classifier.context_lengths(contexts), text, first, last)


def contexts_of(member: LanguageModel, contexts: IntArray, special_tokens: SpecialTokens | None = None) -> IntArray:
    """Return the part of contexts `[N, C]` that a member reads, `[N, its context_size]`.

    special_tokens: for contexts across sentences; a member of single sentences gets `<s>` for words before its own.
    """
    size, missing = member.context_size, (member.context_size or 0) - contexts.shape[1]
    if missing > 0:  # contexts of an unbounded member, all of them short
        contexts = np.pad(contexts, ((0, 0), (missing, 0)), constant_values=member.vocabulary_size - 1)
    last = contexts if size is None else contexts[:, contexts.shape[1] - size :]
    if special_tokens is None or special_tokens.eos is None or member.across_sentences:
        return last
    before = np.logical_or.accumulate((last == special_tokens.eos)[:, ::-1], axis=1)[:, ::-1]
    return np.where(before, special_tokens.bos, last)


def longest_context(members: list[LanguageModel]) -> int | None:
    """Return the largest context_size of the members; None if one of them is unbounded."""
    sizes = [member.context_size for member in members]
    return None if None in sizes else max(size for size in sizes if size is not None)


def member_dists(members: list[LanguageModel], contexts: IntArray, special_tokens: SpecialTokens | None) -> FloatArray:
    """Return each member's log p of all words after contexts `[N, C]`: `[M, N, V]`."""
    return np.stack([member.log_dist(contexts_of(member, contexts, special_tokens)) for member in members])


def checked_weights(where: str, weights: FloatArray, shape: tuple[int, ...], *, sum_to_one: bool = True) -> FloatArray:
    """Return weights in float64. Raises ValueError, naming `where`, if they are not valid weights."""
    array = as_array(where, weights)
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise ValueError(f"{where} must be {list(shape)} numbers; got {array.dtype} {list(array.shape)}")
    array = array.astype(np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{where} must be finite and 0 or more; got {array.tolist()}")
    if sum_to_one and not np.allclose(array.sum(axis=-1), 1, rtol=0, atol=1e-6):
        raise ValueError(f"{where} must sum to one; got a sum of {array.sum(axis=-1).tolist()}")
    return array


class MixedModel(LanguageModel):
    """A model that mixes M language models with weights. A subclass defines how log-probabilities are combined."""

    vocabulary_size: int = 0
    context_size: int | None = None
    across_sentences = normalized = dynamic = False
    weights_sum_to_one = True

    def __init__(
        self,
        members: list[LanguageModel],
        weights: FloatArray,
        special_tokens: SpecialTokens | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """special_tokens: needed if some members read across sentences. shape: of the weights, by default `[M]`."""
        if not members:
            raise ValueError(f"{type(self).__name__}: members must be one language model or more")
        where, shape = f"{type(self).__name__}: weights", shape or (len(members),)
        self.members, self.special_tokens = members, special_tokens
        self.weights = checked_weights(where, weights, shape, sum_to_one=self.weights_sum_to_one)
        self.vocabulary_size, self.context_size = members[0].vocabulary_size, longest_context(members)
        self.across_sentences = any(member.across_sentences for member in members)
        # Weights that need not sum to one require normalization over the whole vocabulary.
        self.normalized = not self.weights_sum_to_one or all(member.normalized for member in members)
        self.dynamic = any(member.dynamic for member in members)

    @abstractmethod
    def mix_scores(self, log_probs: FloatArray, text: Split, *, progress: bool = False) -> FloatArray:
        """Return log p of each token of a text, `[N]`, from the members' log p, `[M, N]`. progress: show a bar."""

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        """Return log p of each predicted token of a text, `[N]`; each member computes its own in its fastest way."""
        scored = [member.score_text(text, progress=progress, memory_limit=memory_limit) for member in self.members]
        return self.mix_scores(np.stack(scored), text, progress=progress)

    def _dists_of_text(self, text: Split, first: int, last: int) -> FloatArray:
        """Return the members' log p of all words before the tokens `first` to `last` - 1, `[M, last - first, V]`."""
        return np.stack([member.log_dist_text(text, first, last) for member in self.members])

    def _reading(self, contexts: IntArray) -> list[tuple[LanguageModel, IntArray]]:
        """Yield the members, each with the part of the contexts that it reads."""
        return [(member, contexts_of(member, contexts, self.special_tokens)) for member in self.members]


class LinearMixture(MixedModel):
    """A mixture with log p = log sum_k weight_k p_k; in a subclass the weights may depend on the context."""

    def _weights_after(self, contexts: IntArray) -> FloatArray:
        """Return the weights after contexts `[N, C]`: `[M]` or `[M, N]`."""
        return self.weights

    def _weights_in(self, text: Split, first: int, last: int) -> FloatArray:
        """Return the weights before these tokens of a text: `[M]` or `[M, last - first]`."""
        return self.weights

    def mix_scores(self, log_probs: FloatArray, text: Split, *, progress: bool = False) -> FloatArray:
        return mix(log_probs, self._weights_in(text, 0, text.tokens))

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        return mix(self._dists_of_text(text, first, last), self._weights_in(text, first, last))

    def score_tokens(
        self, text: Split, first: int, last: int, *, unnormalized: bool = False, progress: bool = False
    ) -> FloatArray:
        """Return log p of the tokens `first` to `last` - 1; a recurrent member continues from its last position."""
        if unnormalized:
            return super().score_tokens(text, first, last, unnormalized=True)
        if self.dynamic:  # a cache depends on the whole text before
            return self.score_text(text, progress=progress)[first:last]
        scored = [member.score_tokens(text, first, last, progress=progress) for member in self.members]
        return mix(np.stack(scored), self._weights_in(text, first, last))

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_prob", contexts)
        log_probs = [member.log_prob(own, targets) for member, own in self._reading(contexts)]
        return mix(np.stack(log_probs), self._weights_after(contexts))

    def explain(self, contexts: IntArray, targets: IntArray) -> dict[str, Array]:
        """Return p of each member k and its weight: p is the sum of `weight k` times `p k`."""
        contexts = self._checked_contexts("explain", contexts)
        weights = self._weights_after(contexts)
        columns: dict[str, Array] = {}
        for k, (weight, (member, own)) in enumerate(zip(weights, self._reading(contexts), strict=True), 1):
            columns[f"weight {k}"] = np.broadcast_to(weight, len(contexts))
            columns[f"p {k}"] = np.exp(member.log_prob(own, targets))
        return columns

    def log_dist(self, contexts: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_dist", contexts)
        return mix(member_dists(self.members, contexts, self.special_tokens), self._weights_after(contexts))

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_prob_candidates", contexts)
        log_probs = [member.log_prob_candidates(own, candidates) for member, own in self._reading(contexts)]
        return mix(np.stack(log_probs), self._weights_after(contexts))

    def probabilities(self, contexts: IntArray) -> npt.NDArray[Any]:
        contexts = self._checked_contexts("probabilities", contexts)
        weights = self._weights_after(contexts)
        weight_rows = weights.tolist() if weights.ndim == 1 else weights[:, :, None]
        read = zip(weight_rows, self._reading(contexts), strict=True)
        return reduce(np.add, (weight * member.probabilities(own) for weight, (member, own) in read))


class Mixture(LinearMixture):
    """A linear mixture with weights `[M]`."""

    def log_prob_choices(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        if not self.over_candidates or self.special_tokens is None:
            return super().log_prob_choices(contexts, candidates)
        log_sharers = np.log(unk_sharers(candidates, self.special_tokens.unk))
        log_probs = [member.log_prob_choices(own, candidates) for member, own in self._reading(contexts)]
        return mix(np.stack([log_softmax(each - log_sharers) for each in log_probs]), self.weights) + log_sharers

    @property
    def state_size(self) -> int:
        return sum(member.state_size for member in self.members)

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> IntArray:
        return np.concatenate([m.begin(special_tokens, sentence_start=sentence_start) for m in self.members])

    def advance(self, states: IntArray, words: IntArray, special_tokens: SpecialTokens) -> tuple[FloatArray, IntArray]:
        cuts = np.cumsum([member.state_size for member in self.members])[:-1]
        parts = zip(self.members, np.split(states, cuts, axis=1), strict=True)
        log_probs, after = zip(*(member.advance(part, words, special_tokens) for member, part in parts), strict=True)
        return mix(np.stack(log_probs), self.weights), np.concatenate(after, axis=1)


class ClassMixture(LinearMixture):
    """A mixture with weights `[K, M]` for the K classes of contexts of `classifier`, one of the members."""

    def __init__(
        self,
        members: list[LanguageModel],
        weights: FloatArray,
        classifier: LanguageModel,
        special_tokens: SpecialTokens | None = None,
    ) -> None:
        super().__init__(members, weights, special_tokens, (classifier.context_classes or 0, len(members)))
        self.classifier = classifier

    def _weights_after(self, contexts: IntArray) -> FloatArray:
        classes = self.classifier.context_lengths(contexts_of(self.classifier, contexts, self.special_tokens))
        return self.weights[classes].T

    def _weights_in(self, text: Split, first: int, last: int) -> FloatArray:
        return self.weights[classes_of_text(self.classifier, text, first, last)].T
