"""Linear mixtures whose weights depend on the context: by how much of it an n-gram model has seen.

p(w|h) = sum_k weight_c(h),k p_k(w|h), as in deleted interpolation (Jelinek & Mercer 1980). The class c(h) is the
number of words, counted from the last, that the model has seen together: of the context alone, so that each
distribution sums to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lmtool.data.corpus import Split
from lmtool.evaluation.score import Scored
from lmtool.language_model import FloatArray, IntArray, LanguageModel
from lmtool.mixtures.linear import Ends, Mixture, fit_weights, seen_by

CHUNK = 1 << 16  # tokens whose contexts are made at once


class Classifier(LanguageModel, Protocol):
    """A model that knows how much of a context it has seen: an n-gram model."""

    def context_lengths(self, contexts: IntArray) -> IntArray:
        """The classes `[N]` of contexts `[N, C]`, from 0 to C."""


@dataclass(frozen=True, slots=True)
class ClassFit:
    """Weights `[K, M]` of each class, how many tokens it had, `[K]`, and the bound of linear.Fit for the whole."""

    weights: FloatArray
    tokens: IntArray
    iterations: int
    gap: float


def fit_class_weights(log_prob: FloatArray, classes: IntArray, count: int) -> ClassFit:
    """Weights by EM, each class for itself, `count` of them.

    log_prob: `[M, N]`, natural; classes: `[N]`. A class without tokens takes the weights of all tokens together.
    Raises UserError as fit_weights.
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
    found = [
        classifier.context_lengths(split.contexts(at, min(at + CHUNK, split.tokens), classifier.context_size))
        for at in range(0, split.tokens, CHUNK)
    ]
    return np.concatenate(found)


class ClassMixture(Mixture):
    """A mixture with weights `[K, M]`; K is one more than the longest context of the classifier, one of the members."""

    def __init__(
        self, members: list[LanguageModel], weights: FloatArray, classifier: Classifier, ends: Ends | None = None
    ) -> None:
        super().__init__(members, weights, ends)
        self.classifier = classifier

    def _mixed(self, log_prob: FloatArray, classes: IntArray) -> FloatArray:
        """log_prob `[M, N, ...]` and classes `[N]` as `[N, ...]`."""
        with np.errstate(divide="ignore"):
            weights = np.log(self.weights)[classes].T  # [M, N]
        found: FloatArray = np.logaddexp.reduce(log_prob + weights.reshape(*weights.shape, *[1] * (log_prob.ndim - 2)))
        return found

    def _classes(self, contexts: IntArray) -> IntArray:
        return self.classifier.context_lengths(seen_by(self.classifier, contexts, self.ends))

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        found = [member.log_prob(seen_by(member, contexts, self.ends), targets) for member in self.members]
        return self._mixed(np.stack(found), self._classes(contexts))

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        found = [member.log_dist(seen_by(member, contexts, self.ends)) for member in self.members]
        return self._mixed(np.stack(found), self._classes(contexts))

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        found = [
            member.log_prob_candidates(seen_by(member, contexts, self.ends), candidates) for member in self.members
        ]
        return self._mixed(np.stack(found), self._classes(contexts))

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """As SplitScorer.log_prob_split."""
        found = np.stack([scored(member, split) for member in self.members])
        return self._mixed(found, classes_of_split(self.classifier, split))
