"""Log-linear mixtures (Klakow 1998): log p(w|h) = sum_k weight_k log p_k(w|h) - log Z(h).

Z(h) is summed over the whole vocabulary, so that each distribution sums to one and every word asked for costs all
members' distributions. The log-likelihood is concave in the weights; its gradient is the mean of
log p_k(w|h) - E[log p_k] and its Hessian minus the mean covariance of the log p_k, both under the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray, LanguageModel
from lmtool.mixtures.linear import Ends, Members, seen_by

CHUNK = 128  # contexts whose distributions are made at once
Chunks = Callable[
    [], Iterator[tuple[FloatArray, IntArray]]
]  # of distributions [M, n, V] and targets [n], each time anew


def combined(log_dist: FloatArray, weights: FloatArray) -> FloatArray:
    """Members' distributions `[M, n, V]`, raised to their weights, multiplied and normalised: `[n, V]`, natural logs.

    A member of weight 0 has no say; a word to which another one gives 0 has 0. Where no word is left all are alike.
    """
    used = weights > 0
    product = np.tensordot(weights[used], log_dist[used], axes=1)
    largest = product.max(axis=1, keepdims=True)
    product = np.where(np.isneginf(largest), 0.0, product - np.where(np.isneginf(largest), 0.0, largest))
    found: FloatArray = product - np.log(np.exp(product).sum(axis=1, keepdims=True))
    return found


def likelihood(weights: FloatArray, chunks: Chunks) -> tuple[float, FloatArray, FloatArray]:
    """Mean log-likelihood in nats a token, its gradient `[M]` and Hessian `[M, M]`.

    Raises UserError where a member gives a token probability 0: then so does every mixture.
    """
    members = len(weights)
    value, gradient, hessian, tokens = 0.0, np.zeros(members), np.zeros((members, members)), 0
    for log_dist, targets in chunks():
        rows = np.arange(len(targets))
        own = log_dist[:, rows, targets]  # [M, n]
        if np.isneginf(own).any():
            raise UserError(
                f"token {tokens + int(np.isneginf(own).any(axis=0).argmax())} of those to fit on has probability zero "
                "under some run: a log-linear mixture needs smoothed ones"
            )
        mixed = combined(log_dist, weights)
        p = np.exp(mixed)
        f = np.where(p > 0, np.where(np.isneginf(log_dist), 0.0, log_dist), 0.0)
        expected = np.einsum("mnv,nv->mn", f, p, optimize=True)
        value += float(mixed[rows, targets].sum())
        gradient += (own - expected).sum(axis=1)
        for k in range(members):
            weighted = f[k] * p
            for j in range(k, members):
                covariance = float((weighted * f[j]).sum() - expected[k] @ expected[j])
                hessian[k, j] -= covariance
                if j != k:
                    hessian[j, k] -= covariance
        tokens += len(targets)
    return value / tokens, gradient / tokens, hessian / tokens


@dataclass(frozen=True, slots=True)
class LogLinearFit:
    """Weights `[M]`, steps taken, and the Newton decrement: about how many nats a token the optimum is better."""

    weights: FloatArray
    iterations: int
    decrement: float


def fit_log_linear(chunks: Chunks, members: int, *, tolerance: float = 1e-9, iterations: int = 50) -> LogLinearFit:
    """The weights of 0 or more with the highest likelihood, by Newton's method, each step halved until it gains.

    Raises UserError as likelihood.
    """
    weights = np.full(members, 1 / members)
    value, gradient, hessian = likelihood(weights, chunks)
    decrement = np.inf
    for done in range(1, iterations + 1):
        free = (weights > 0) | (gradient > 0)
        step = np.zeros(members)
        curvature = -hessian[np.ix_(free, free)]
        step[free] = np.linalg.lstsq(curvature, gradient[free], rcond=1e-12)[0]
        decrement = max(float(gradient @ step) / 2, 0.0)
        if decrement <= tolerance:
            return LogLinearFit(weights, done, decrement)
        size = 1.0
        while True:
            tried = np.maximum(weights + size * step, 0.0)
            if not tried.any():
                size /= 2
                continue
            found = likelihood(tried, chunks)
            if found[0] >= value:
                break
            size /= 2
            if size < 1e-6:  # nothing more to gain in float64
                return LogLinearFit(weights, done, decrement)
        weights, (value, gradient, hessian) = tried, found
    return LogLinearFit(weights, iterations, decrement)


class LogLinear(Members):
    """A log-linear mixture, itself a language model, exactly normalised over the vocabulary."""

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        return np.concatenate([self._log_dist(contexts[at : at + CHUNK]) for at in range(0, len(contexts), CHUNK)])

    def _log_dist(self, contexts: IntArray) -> FloatArray:
        return combined(member_dists(self.members, contexts, self.ends), self.weights)

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        return self.log_prob_candidates(contexts, targets[:, None])[:, 0]

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        found = [
            np.take_along_axis(self._log_dist(contexts[at : at + CHUNK]), candidates[at : at + CHUNK], axis=1)
            for at in range(0, len(contexts), CHUNK)
        ]
        return np.concatenate(found)


def member_dists(members: list[LanguageModel], contexts: IntArray, ends: Ends | None) -> FloatArray:
    """The distributions of all members after contexts `[N, C]`, `[M, N, V]`; ends: as in seen_by."""
    return np.stack([member.log_dist(seen_by(member, contexts, ends)) for member in members])
