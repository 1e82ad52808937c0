"""Caches: distributions over the words that a text has had so far, mixed with models that know nothing of it.

Both remember the last `size` tokens, sentence ends included and across sentences:

- unigram (Kuhn & De Mori 1990): each of them counts alike;
- neural (Grave, Joulin & Usunier 2017, eq. 3): token i counts exp(theta h_t . h_i), h being a network's hidden units
  before each token, so that what followed on like contexts counts most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.corpus import Split
from lmtool.evaluation.score import Scored
from lmtool.language_model import FloatArray, IntArray, LanguageModel, reads_across
from lmtool.mixtures.linear import Ends, Mixture, mix, seen_by

BLOCK = 256  # tokens whose products with what the cache holds are made at once
Hidden = npt.NDArray[np.float32]


class Encoding(LanguageModel, Protocol):
    """A model with hidden units: a neural one."""

    def hidden(self, contexts: IntArray) -> Hidden:
        """The hidden units `[N, D]` after contexts `[N, C]`."""


@dataclass(frozen=True, slots=True)
class UnigramCache:
    """The relative frequencies of the last `size` tokens."""

    size: int

    def log_prob(self, split: Split) -> FloatArray:
        """log p of each token `[N]`, -inf for what the cache has not, and for the first one."""
        p = np.empty(split.tokens)
        _counted(split.ids.astype(np.int64), self.size, int(split.ids.max(initial=0)) + 1, p)
        with np.errstate(divide="ignore"):
            found: FloatArray = np.log(p)
        return found

    def dist(self, split: Split, first: int, last: int, vocabulary_size: int) -> FloatArray:
        """p of all words before the tokens from `first` to before `last`, `[last - first, V]`; of the first one 0."""
        ids = split.ids.astype(np.int64)
        found = np.zeros((last - first, vocabulary_size))
        for t in range(max(first, 1), last):
            held = ids[max(0, t - self.size) : t]
            found[t - first] = np.bincount(held, minlength=vocabulary_size) / len(held)
        return found


@numba.njit(cache=True, nogil=True)
def _counted(ids: Any, size: int, words: int, found: Any) -> None:
    counts = np.zeros(words, np.int64)
    for t in range(len(ids)):
        held = min(t, size)
        found[t] = counts[ids[t]] / held if held else 0.0
        counts[ids[t]] += 1
        if t >= size:
            counts[ids[t - size]] -= 1


@dataclass(frozen=True, slots=True)
class NeuralCache:
    """The last `size` tokens, weighted by how alike the hidden units of `encoder` were before them."""

    size: int
    theta: float
    encoder: Encoding

    def log_prob(self, split: Split) -> FloatArray:
        """As UnigramCache.log_prob."""
        found: FloatArray = neural_cache(hidden_units(self.encoder, split), split.ids, self.size, [self.theta])[0]
        return found

    def dist(self, split: Split, first: int, last: int, vocabulary_size: int) -> FloatArray:
        """As UnigramCache.dist."""
        begin = max(0, first - self.size)
        index = np.arange(begin, last)
        contexts, ids = split.seen(reads_across(self.encoder)).windows(index, self.encoder.context_size)
        hidden = self.encoder.hidden(contexts)
        found = np.zeros((last - first, vocabulary_size))
        for t in range(max(first, 1), last):
            held = slice(max(0, t - self.size) - begin, t - begin)
            scores = self.theta * (hidden[held] @ hidden[t - begin]).astype(np.float64)
            weights = np.exp(scores - scores.max())
            found[t - first] = np.bincount(ids[held], weights / weights.sum(), minlength=vocabulary_size)
        return found


Cache = UnigramCache | NeuralCache


def hidden_units(encoder: Encoding, split: Split) -> Hidden:
    """The hidden units before each token, `[N, D]`."""
    split = split.seen(reads_across(encoder))
    found = [
        encoder.hidden(split.contexts(at, min(at + 8192, split.tokens), encoder.context_size))
        for at in range(0, split.tokens, 8192)
    ]
    return np.concatenate(found)


def neural_cache(hidden: Hidden, ids: npt.NDArray[Any], size: int, thetas: list[float]) -> FloatArray:
    """log p of each token under a neural cache, for several theta at once: `[len(thetas), N]`.

    hidden: `[N, D]`, before each of the tokens ids `[N]`. -inf for what the cache has not, and for the first one.
    """
    tokens = len(ids)
    found = np.zeros((len(thetas), tokens))
    for first in range(0, tokens, BLOCK):
        last = min(first + BLOCK, tokens)
        begin = max(0, first - size)
        products = hidden[first:last] @ hidden[begin:last].T  # [n, n + size]
        at = np.arange(first, last)[:, None] - np.arange(begin, last)  # how far back each held token is
        outside = (at < 1) | (at > size)
        inside = (~outside).astype(np.float32)
        same = (ids[first:last, None] == ids[begin:last]) & ~outside
        products[outside] = -np.inf
        largest = products.max(axis=1, keepdims=True)
        largest[np.isneginf(largest)] = 0.0  # of the text's first token
        products -= largest
        products[outside] = 0.0
        for k, theta in enumerate(thetas):
            weights = np.exp(np.float32(theta) * products)
            weights *= inside
            total = weights.sum(axis=1, dtype=np.float64)
            hits = np.einsum("ij,ij->i", weights, same, dtype=np.float64)
            found[k, first:last] = np.divide(hits, total, out=np.zeros(len(total)), where=total > 0)
    with np.errstate(divide="ignore"):
        return np.log(found)


class CachedMixture:
    """A linear mixture of M models and a cache, weights `[M + 1]`, the cache's last.

    A dynamic model: what it gives a token depends on the whole text before it, so that it answers for running text.
    Asked for contexts alone, where nothing was read, its cache is empty and the models share its weight.
    """

    dynamic = True

    def __init__(
        self, members: list[LanguageModel], weights: FloatArray, cache: Cache, ends: Ends | None = None
    ) -> None:
        static, equal = weights[:-1].sum(), np.full(len(members), 1 / len(members))
        self.static = Mixture(members, weights[:-1] / static if static > 0 else equal, ends)
        self.weights = weights
        self.cache = cache

    @property
    def context_size(self) -> int:
        """Of the models."""
        return self.static.context_size

    @property
    def across_sentences(self) -> bool:
        """Whether a model reads across sentences."""
        return self.static.across_sentences

    @property
    def normalised(self) -> bool:
        """Whether all models are."""
        return self.static.normalised

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob, with an empty cache."""
        return self.static.log_prob(contexts, targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist, with an empty cache."""
        return self.static.log_dist(contexts)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates, with an empty cache."""
        return self.static.log_prob_candidates(contexts, candidates)

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """As SplitScorer.log_prob_split: a text read from its beginning."""
        own = np.stack([scored(member, split) for member in self.static.members])
        return with_cache(own, self.cache.log_prob(split), self.weights, self.static.weights)

    def log_dist_split(self, split: Split, first: int, last: int) -> FloatArray:
        """As Dynamic.log_dist_split."""
        contexts = split.seen(self.across_sentences).contexts(first, last, self.context_size)
        own = np.stack([m.log_dist(seen_by(m, contexts, self.static.ends)) for m in self.static.members])
        with np.errstate(divide="ignore"):
            cached = np.log(self.cache.dist(split, first, last, own.shape[2]))
        found = mix(np.concatenate([own, cached[None]]), self.weights)
        if first == 0:
            found[0] = mix(own[:, 0], self.static.weights)
        return found


def with_cache(own: FloatArray, cached: FloatArray, weights: FloatArray, static: FloatArray) -> FloatArray:
    """Members' log-probabilities `[M, N]` of a whole text and the cache's `[N]`, mixed; the first token without it."""
    found = mix(np.concatenate([own, cached[None]]), weights)
    found[:1] = mix(own[:, :1], static)
    return found
