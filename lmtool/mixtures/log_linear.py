"""Log-linear mixtures (Klakow 1998): log p(w|h) = sum_k weight_k log p_k(w|h) - log Z(h).

Z(h) is the sum over the whole vocabulary: each distribution sums to one, and the probability of even one word needs the
whole distributions of all members. The log-likelihood is concave in the weights; its gradient is the mean of
log p_k(w|h) - E[log p_k], and its Hessian the negative mean covariance of the log p_k, both under the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.evaluation.metrics import log_softmax
from lmtool.mixtures.linear import TOLERANCE, Fit, MixedModel, member_dists
from lmtool.system.arrays import FloatArray, IntArray, in_chunks
from lmtool.system.terminal import token_bar

CONTEXTS_PER_CHUNK = 128  # contexts whose distributions are in memory at once
# A function that iterates over chunks of distributions [M, n, V] and targets [n], starting from the first in each call.
Chunks = Callable[[], Iterator[tuple[FloatArray, IntArray]]]


def combine(log_dist: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the log-linear mixture `[n, V]` of the members' distributions `[M, n, V]`, all as natural logarithms.

    A word to which a member with a weight above 0 gives probability 0 has 0; if all words have, all are equally likely.
    """
    used = weights > 0
    return log_softmax(np.tensordot(weights[used], log_dist[used], axes=1))


def likelihood(weights: FloatArray, chunks: Chunks, members: IntArray | None = None) -> Likelihood:
    """Compute the mean log-likelihood of the mixture of `members` (None: all) with weights `[M]` of 0 or more.

    Words to which a member gives probability 0 have probability 0 even if its weight is 0, so that the likelihood is
    concave and smooth up to the bounds. Raises UserError if a member gives a token probability 0.
    """
    size = len(weights)
    value, gradient, hessian, tokens = 0.0, np.zeros(size), np.zeros((size, size)), 0
    for log_dist, targets in chunks():
        member_log_dist = log_dist if members is None or len(members) == len(log_dist) else log_dist[members]
        rows = np.arange(len(targets))
        target_log_prob = member_log_dist[:, rows, targets]  # [M, n]
        if np.isneginf(target_log_prob).any():
            where = tokens + int(np.isneginf(target_log_prob).any(axis=0).argmax())
            raise UserError(
                f"token {where} of those to fit on has probability zero under some run: a log-linear mixture needs "
                "smoothed ones"
            )
        zeros = np.isneginf(member_log_dist)
        f = np.where(zeros, 0.0, member_log_dist)
        mixed = log_softmax(np.where(zeros.any(axis=0), -np.inf, np.tensordot(weights, f, axes=1)))
        p = np.exp(mixed)
        expected = np.einsum("mnv,nv->mn", f, p, optimize=True)
        value += float(mixed[rows, targets].sum())
        gradient += (target_log_prob - expected).sum(axis=1)
        for k in range(size):
            weighted = f[k] * p
            for j in range(k, size):
                covariance = float((weighted * f[j]).sum() - expected[k] @ expected[j])
                hessian[k, j] -= covariance
                if j != k:
                    hessian[j, k] -= covariance
        tokens += len(targets)
    return Likelihood(value / tokens, gradient / tokens, hessian / tokens)


def without_lone_reserves(log_dist: FloatArray) -> FloatArray:
    """Change the distributions `[M, n, V]` of members in place: where one of them keeps nothing for types outside the
    vocabulary (the entry of `<s>`), no member does, so that a weight of 0 equals the limit of small weights.
    """
    none = np.isneginf(log_dist[:, :, -1]).any(axis=0)
    log_dist[:, none, -1] = -np.inf
    return log_dist


class Likelihood(NamedTuple):
    """The mean log-likelihood in nats per token, its gradient `[M]` and Hessian `[M, M]`."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def fit_log_linear(chunks: Chunks, members: int, *, tolerance: float = TOLERANCE, iterations: int = 50) -> Fit:
    """Return the weights of 0 or more with the highest likelihood, by Newton's method with step halving.

    The gap is the Newton decrement, an estimate: the gain of the best step by the quadratic model of the likelihood,
    plus the loss from zeros of members that were left out.

    A step goes to the optimum of the quadratic model under the bounds, so that the decrement is 0 exactly where the
    Karush-Kuhn-Tucker conditions hold: a gradient of 0 for weights above 0, of at most 0 for weights of 0. A member
    whose weight is 0 at the optimum is left out with the zeros of its distributions, and the others are fitted again.
    """
    members_left, weights = np.arange(members), np.full(members, 1 / members)
    done, reached, lost = 0, -np.inf, 0.0
    while True:
        fit = _newton(chunks, members_left, weights, tolerance, iterations - done)
        done += fit.iterations
        lost += max(reached - fit.value, 0.0)
        positive = fit.weights > 0
        if positive.all() or not positive.any() or fit.gap > tolerance:
            found = np.zeros(members)
            found[members_left] = fit.weights
            return Fit(found, done, fit.gap + lost, fit.value)
        members_left, weights, reached = members_left[positive], fit.weights[positive], fit.value


def _newton(chunks: Chunks, members: IntArray, weights: FloatArray, tolerance: float, iterations: int) -> Fit:
    """Run fit_log_linear for some members, starting from weights `[M]`."""
    at = likelihood(weights, chunks, members)
    done = 1
    while True:
        step = bounded_optimum(-at.hessian, at.gradient - at.hessian @ weights) - weights
        decrement = max(float(at.gradient @ step + step @ at.hessian @ step / 2), 0.0)
        if decrement <= tolerance or done >= iterations:
            return Fit(weights, done, decrement, at.value)
        size = 1.0
        while (there := likelihood(weights + size * step, chunks, members)).value < at.value:
            size /= 2
            if size < 1e-6:  # no further gain in float64
                return Fit(weights, done, decrement, at.value)
        weights, at = weights + size * step, there
        done += 1


def bounded_optimum(curvature: FloatArray, slope: FloatArray) -> FloatArray:
    """Return the x `[M]` of 0 or more that maximizes slope x - x curvature x / 2; curvature: `[M, M]`, semi-definite.

    Lawson & Hanson (1974, ch. 23): the variable with the steepest gradient is freed, and the optimum of the free ones
    taken, up to the bound of the first that would become negative, which is fixed at 0 again.
    """
    x = np.zeros(len(slope))
    free = np.zeros(len(slope), dtype=bool)
    tolerance = 1e-13 * max(float(np.abs(slope).max(initial=0)), 1e-300)
    for _ in range(10 * len(slope)):
        gradient = np.where(free, 0.0, slope - curvature @ x)
        if not (gradient > tolerance).any():
            break
        free[gradient.argmax()] = True
        while True:
            target = np.zeros(len(slope))
            target[free] = np.linalg.lstsq(curvature[np.ix_(free, free)], slope[free], rcond=1e-12)[0]
            negative = free & (target <= 0)
            if not negative.any():
                x = target
                break
            share = (x[negative] / np.maximum(x[negative] - target[negative], 1e-300)).min()
            x = np.maximum(x + share * (target - x), 0.0)
            free &= ~(negative & (x <= 1e-15 * x.max(initial=0)))
            x[~free] = 0.0
    return x


class LogLinear(MixedModel):
    """A log-linear mixture with weights `[M]`."""

    weights_sum_to_one = False

    def log_dist(self, contexts: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_dist", contexts)
        # Zero contexts also form one chunk, which gives the result its shape.
        chunks = in_chunks(max(len(contexts), 1), CONTEXTS_PER_CHUNK)
        dists = (member_dists(self.members, contexts[chunk], self.special_tokens) for chunk in chunks)
        return np.concatenate([combine(without_lone_reserves(dist), self.weights) for dist in dists])

    def mix_scores(self, log_probs: FloatArray, text: Split, *, progress: bool = False) -> FloatArray:
        return self.score_text(text, progress=progress)  # from the members' whole distributions

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        return combine(without_lone_reserves(self._dists_of_text(text, first, last)), self.weights)

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        return self.score_tokens(text, 0, text.tokens, progress=progress)

    def score_tokens(
        self, text: Split, first: int, last: int, *, unnormalized: bool = False, progress: bool = False
    ) -> FloatArray:
        """Return log p of the tokens `first` to `last` - 1; a recurrent member continues from its last position."""
        if unnormalized or not self.in_order:
            return super().score_tokens(text, first, last, unnormalized=unnormalized, progress=progress)
        log_prob, ids = np.empty(last - first), text.ids[first:last].astype(np.int64)
        with token_bar(last - first, shown=progress) as bar:
            for part in in_chunks(last - first, CONTEXTS_PER_CHUNK):
                dists = self.log_dist_text(text, first + part.start, first + part.stop)
                log_prob[part] = np.take_along_axis(dists, ids[part, None], 1)[:, 0]
                bar.update(len(dists))
        return log_prob
