"""Cache models: distributions over the words of the text so far, mixed with static models.

Both kinds hold the last `size` tokens of a text, including ends of sentences, across sentences:

- unigram (Kuhn & De Mori 1990): all tokens have the same weight;
- neural (Grave, Joulin & Usunier 2017, eq. 3): token i has weight exp(theta h_t . h_i), where h_i are the hidden units
  of a network before token i, so that tokens after similar contexts weigh most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.split import Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.language_model import LanguageModel
from lmtool.mixtures.linear import LinearMixture, mix
from lmtool.system.arrays import FloatArray, IntArray, in_chunks

BLOCK = 256  # tokens whose products with the tokens in the cache are computed at once
Hidden = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Cache(ABC):
    """A distribution over the last `size` tokens."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size}: a cache holds 1 token or more")

    @abstractmethod
    def log_prob(self, split: Split) -> FloatArray:
        """Return log p of each token `[N]`; -inf for the first of a text and for words that are not in the cache."""

    @abstractmethod
    def dist(self, split: Split, first: int, last: int, vocabulary_size: int) -> FloatArray:
        """Return p of all words before these tokens, `[last - first, V]`; 0 before the first token of a text."""


class UnigramCache(Cache):
    """The relative frequencies of the last `size` tokens."""

    def log_prob(self, split: Split) -> FloatArray:
        ids, p = split.ids.astype(np.int64), np.empty(split.tokens)
        for begin, end in pairwise(split.text_offsets):
            _relative_frequencies(ids[begin:end], self.size, int(ids[begin:end].max(initial=0)) + 1, p[begin:end])
        with np.errstate(divide="ignore"):
            log_prob: FloatArray = np.log(p)
        return log_prob

    def dist(self, split: Split, first: int, last: int, vocabulary_size: int) -> FloatArray:
        ids = split.ids.astype(np.int64)
        p = np.zeros((last - first, vocabulary_size))
        for t, begin in _with_texts(split, first, last):
            held = ids[max(begin, t - self.size) : t]
            p[t - first] = np.bincount(held, minlength=vocabulary_size) / len(held)
        return p


def _with_texts(split: Split, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the tokens `first` to `last` - 1 that do not begin a text, each with its text's first token."""
    index = np.arange(first, last)
    begins = split.text_offsets[np.searchsorted(split.text_offsets, index, side="right") - 1]
    yield from ((t, begin) for t, begin in zip(index.tolist(), begins.tolist(), strict=True) if t > begin)


@numba.njit(cache=True, nogil=True)
def _relative_frequencies(ids: Any, size: int, words: int, p: Any) -> None:
    # Running counts take one step per token; UnigramCache.dist is the plain form, a bincount of `size` tokens for each.
    # test_a_cached_mixture_sums_to_one_and_scores_what_its_rows_say compares the two.
    counts = np.zeros(words, np.int64)
    for t in range(len(ids)):
        held = min(t, size)
        p[t] = counts[ids[t]] / held if held else 0.0
        counts[ids[t]] += 1
        if t >= size:
            counts[ids[t - size]] -= 1


@dataclass(frozen=True, slots=True)
class NeuralCache(Cache):
    """The last `size` tokens, weighted by the similarity of the hidden units of `encoder` before them."""

    theta: float
    encoder: LanguageModel

    def log_prob(self, split: Split) -> FloatArray:
        hidden = self.encoder.hidden_text(split, 0, split.tokens)
        texts = [slice(*ends) for ends in pairwise(split.text_offsets)]
        return np.concatenate(
            [neural_cache(hidden[text], split.ids[text], self.size, [self.theta])[0] for text in texts]
        )

    def dist(self, split: Split, first: int, last: int, vocabulary_size: int) -> FloatArray:
        begin = max(0, first - self.size)
        hidden, ids = self.encoder.hidden_text(split, begin, last), split.ids[begin:last]
        p = np.zeros((last - first, vocabulary_size))
        for t, start in _with_texts(split, first, last):
            held = slice(max(start, t - self.size) - begin, t - begin)
            scores = self.theta * (hidden[held] @ hidden[t - begin]).astype(np.float64)
            weights = np.exp(scores - scores.max())
            p[t - first] = np.bincount(ids[held], weights / weights.sum(), minlength=vocabulary_size)
        return p


def neural_cache(hidden: Hidden, ids: npt.NDArray[Any], size: int, thetas: list[float]) -> FloatArray:
    """Return log p of each token under a neural cache, for several values of theta at once: `[len(thetas), N]`.

    hidden: `[N, D]`, the hidden units before each of the tokens ids `[N]`. Words that are not in the cache get -inf.
    """
    tokens = len(ids)
    p = np.zeros((len(thetas), tokens))
    for block in in_chunks(tokens, BLOCK):
        first, last = block.start, block.stop
        begin = max(0, first - size)
        products = hidden[first:last] @ hidden[begin:last].T  # [n, n + size]
        at = np.arange(first, last)[:, None] - np.arange(begin, last)  # distance of each token in the cache
        outside = (at < 1) | (at > size)
        inside = (~outside).astype(np.float32)
        same = (ids[first:last, None] == ids[begin:last]) & ~outside
        products[outside] = -np.inf
        largest = products.max(axis=1, keepdims=True)
        largest[np.isneginf(largest)] = 0.0  # before the text's first token
        products -= largest
        products[outside] = 0.0
        for k, theta in enumerate(thetas):
            weights = np.exp(np.float32(theta) * products)
            weights *= inside
            total = weights.sum(axis=1, dtype=np.float64)
            hits = np.einsum("ij,ij->i", weights, same, dtype=np.float64)
            p[k, first:last] = np.divide(hits, total, out=np.zeros(len(total)), where=total > 0)
    with np.errstate(divide="ignore"):
        return np.log(p)


class CachedMixture(LinearMixture):
    """A linear mixture of M static models and a cache, with weights `[M + 1]`, the cache's last.

    A dynamic model: the probability of a token depends on the whole text before it. For contexts without a text the
    cache is empty, and the static models share its weight.
    """

    def __init__(
        self,
        members: list[LanguageModel],
        weights: FloatArray,
        cache: Cache,
        special_tokens: SpecialTokens | None = None,
    ) -> None:
        super().__init__(members, weights, special_tokens, (len(members) + 1,))
        total, equal = self.weights[:-1].sum(), np.full(len(members), 1 / len(members))
        self.static_weights = self.weights[:-1] / total if total > 0 else equal
        self.cache, self.dynamic = cache, True

    def _weights_after(self, contexts: IntArray) -> FloatArray:
        return self.static_weights

    def mix_scores(self, log_probs: FloatArray, text: Split, *, progress: bool = False) -> FloatArray:
        return self._mixed(log_probs, self.cache.log_prob(text), text.text_offsets[:-1])

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        static = self._dists_of_text(text, first, last)
        with np.errstate(divide="ignore"):
            cached = np.log(self.cache.dist(text, first, last, static.shape[2]))
        starts = text.text_offsets[:-1]
        return self._mixed(static, cached, starts[(starts >= first) & (starts < last)] - first)

    def _mixed(self, static: FloatArray, cached: FloatArray, starts: IntArray) -> FloatArray:
        """Mix log p of the static models `[M, N, ...]` and the cache `[N, ...]`, which is empty at starts of texts."""
        mixed = mix(np.concatenate([static, cached[None]]), self.weights)
        mixed[starts] = mix(static[:, starts], self.static_weights)
        return mixed
