"""Log-linear mixtures (Klakow 1998): log p(w|h) = sum_k weight_k log p_k(w|h) - log Z(h).

Z(h) is the sum over the whole vocabulary: each distribution sums to one, and the probability of even one word needs the
whole distributions of all members. The log-likelihood is concave in the weights; its gradient is the mean of
log p_k(w|h) - E[log p_k], and its Hessian the negative mean covariance of the log p_k, both under the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.mixtures.linear import Members

CHUNK = 128  # contexts whose distributions are held at once
# A function that iterates over chunks of distributions [M, n, V] and targets [n], from the first one in each call.
Chunks = Callable[[], Iterator[tuple[FloatArray, IntArray]]]


def combined(log_dist: FloatArray, weights: FloatArray) -> FloatArray:
    """The log-linear mixture `[n, V]` of the members' distributions `[M, n, V]`, all as natural logarithms.

    A word that a member with a weight above 0 gives probability 0 has probability 0; where this is so for all words the
    distribution is uniform.
    """
    used = weights > 0
    product = np.tensordot(weights[used], log_dist[used], axes=1)
    largest = product.max(axis=1, keepdims=True)
    product = np.where(np.isneginf(largest), 0.0, product - np.where(np.isneginf(largest), 0.0, largest))
    mixed: FloatArray = product - np.log(np.exp(product).sum(axis=1, keepdims=True))
    return mixed


def likelihood(weights: FloatArray, chunks: Chunks) -> tuple[float, FloatArray, FloatArray]:
    """The mean log-likelihood in nats per token, its gradient `[M]` and Hessian `[M, M]`.

    Raises UserError where a member gives a token probability 0, as then every mixture does.
    """
    members = len(weights)
    value, gradient, hessian, tokens = 0.0, np.zeros(members), np.zeros((members, members)), 0
    for log_dist, targets in chunks():
        rows = np.arange(len(targets))
        of_targets = log_dist[:, rows, targets]  # [M, n]
        if np.isneginf(of_targets).any():
            where = tokens + int(np.isneginf(of_targets).any(axis=0).argmax())
            raise UserError(
                f"token {where} of those to fit on has probability zero under some run: a log-linear mixture needs "
                "smoothed ones"
            )
        mixed = combined(log_dist, weights)
        p = np.exp(mixed)
        f = np.where(p > 0, np.where(np.isneginf(log_dist), 0.0, log_dist), 0.0)
        expected = np.einsum("mnv,nv->mn", f, p, optimize=True)
        value += float(mixed[rows, targets].sum())
        gradient += (of_targets - expected).sum(axis=1)
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
    """Weights `[M]`, Newton steps, and half the squared Newton decrement: about how many nats per token the optimum is
    better.
    """

    weights: FloatArray
    iterations: int
    decrement: float


def fit_log_linear(chunks: Chunks, members: int, *, tolerance: float = 1e-9, iterations: int = 50) -> LogLinearFit:
    """The weights of 0 or more with the highest likelihood, by Newton's method with step halving.

    Raises UserError where a member gives a token probability 0.
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
            candidate = np.maximum(weights + size * step, 0.0)
            if not candidate.any():
                size /= 2
                continue
            at_candidate = likelihood(candidate, chunks)
            if at_candidate[0] >= value:
                break
            size /= 2
            if size < 1e-6:  # no further gain in float64
                return LogLinearFit(weights, done, decrement)
        weights, (value, gradient, hessian) = candidate, at_candidate
    return LogLinearFit(weights, iterations, decrement)


class LogLinear(Members):
    """A log-linear mixture with weights `[M]`, itself a language model."""

    @property
    def normalised(self) -> bool:
        """True: Z(h) is summed exactly."""
        return True

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """The log-probabilities of all words after contexts `[N, C]`, `[N, V]`."""
        return np.concatenate([self._log_dist(contexts[at : at + CHUNK]) for at in range(0, len(contexts), CHUNK)])

    def _log_dist(self, contexts: IntArray) -> FloatArray:
        return combined(self.member_dists(contexts), self.weights)

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """log p(target | context), `[N]`, for contexts `[N, C]` and targets `[N]`."""
        return self.log_prob_candidates(contexts, targets[:, None])[:, 0]

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p(candidate | context), `[N, K]`, for contexts `[N, C]` and candidates `[N, K]`."""
        parts = [
            np.take_along_axis(self._log_dist(contexts[at : at + CHUNK]), candidates[at : at + CHUNK], axis=1)
            for at in range(0, len(contexts), CHUNK)
        ]
        return np.concatenate(parts)
