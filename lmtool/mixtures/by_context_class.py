"""Linear mixtures whose weights depend on how much of the context an n-gram model has seen.

p(w|h) = sum_k weight_c(h),k p_k(w|h), as in deleted interpolation (Jelinek & Mercer 1980). The class c(h) is the length
of the longest end of the context that the n-gram model has seen in training. It depends on the context alone, so that
each distribution sums to one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lmtool.data.corpus import Split
from lmtool.evaluation.score import Scored
from lmtool.language_model import LanguageModel, probabilities
from lmtool.mixtures.linear import Ends, Members, checked_weights, contexts_of, fit_weights
from lmtool.system.arrays import FloatArray, IntArray

CHUNK = 1 << 16  # tokens whose contexts are materialised at once


@runtime_checkable
class Classifier(LanguageModel, Protocol):
    """A model that can tell how much of a context it has seen: an n-gram model."""

    def context_lengths(self, contexts: IntArray) -> IntArray:
        """The classes `[N]` of contexts `[N, C]`, from 0 to C."""


@dataclass(frozen=True, slots=True)
class ClassFit:
    """Weights `[K, M]` of K classes, the number of tokens of each class `[K]`, and the gap of linear.Fit for the
    whole.
    """

    weights: FloatArray
    tokens: IntArray
    iterations: int
    gap: float


def fit_class_weights(log_prob: FloatArray, classes: IntArray, count: int) -> ClassFit:
    """Weights by EM for each of `count` classes by itself.

    log_prob: natural, `[M, N]`. classes: `[N]`. A class without tokens has the weights of all tokens together. Raises
    UserError where a token has probability zero under every model.
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
    return ClassFit(weights, tokens, iterations, gap)


def classes_of_split(classifier: Classifier, split: Split) -> IntArray:
    """The class of each token's context, `[N]`."""
    parts = [
        classifier.context_lengths(split.contexts(at, min(at + CHUNK, split.tokens), classifier.context_size))
        for at in range(0, split.tokens, CHUNK)
    ]
    return np.concatenate(parts)


class ClassMixture(Members):
    """A mixture with weights `[K, M]`; K is 1 + the context size of the classifier, which is one of the members."""

    def __init__(
        self, members: list[LanguageModel], weights: FloatArray, classifier: Classifier, ends: Ends | None = None
    ) -> None:
        """Raises ValueError for weights of another shape, that are negative or not finite, or do not sum to one."""
        self.classifier = classifier
        super().__init__(members, weights, ends)

    def _checked_weights(self, weights: FloatArray) -> FloatArray:
        shape = (1 + self.classifier.context_size, len(self.members))
        return checked_weights("ClassMixture: weights", weights, shape)

    def _mix(self, log_prob: FloatArray, classes: IntArray) -> FloatArray:
        """log p `[N, ...]` from the members' `[M, N, ...]` and the classes `[N]`."""
        with np.errstate(divide="ignore"):
            weights = np.log(self.weights)[classes].T  # [M, N]
        mixed: FloatArray = np.logaddexp.reduce(log_prob + weights.reshape(*weights.shape, *[1] * (log_prob.ndim - 2)))
        return mixed

    def _classes(self, contexts: IntArray) -> IntArray:
        return self.classifier.context_lengths(contexts_of(self.classifier, contexts, self.ends))

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """log p(target | context), `[N]`, for contexts `[N, C]` and targets `[N]`."""
        contexts = self._contexts("log_prob", contexts)
        return self._mix(self.member_log_probs(contexts, targets), self._classes(contexts))

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """The log-probabilities of all words after contexts `[N, C]`, `[N, V]`."""
        contexts = self._contexts("log_dist", contexts)
        return self._mix(self.member_dists(contexts), self._classes(contexts))

    def probabilities(self, contexts: IntArray) -> npt.NDArray[Any]:
        """p of all words after contexts `[N, C]`, `[N, V]`, float64."""
        contexts = self._contexts("probabilities", contexts)
        weights = self.weights[self._classes(contexts)]  # [N, M]
        shares = (
            weights[:, k, None] * probabilities(member, contexts_of(member, contexts, self.ends))
            for k, member in enumerate(self.members)
        )
        return functools.reduce(np.add, shares)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p(candidate | context), `[N, K]`, for contexts `[N, C]` and candidates `[N, K]`."""
        contexts = self._contexts("log_prob_candidates", contexts)
        return self._mix(self.member_candidates(contexts, candidates), self._classes(contexts))

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """log p of each token of a split, `[N]`. scored: returns those of a member."""
        log_probs = np.stack([scored(member, split) for member in self.members])
        return self._mix(log_probs, classes_of_split(self.classifier, split))
