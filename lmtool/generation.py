"""Texts drawn from a language model, word by word.

Legend of shapes: N texts, C words of context, V vocabulary entries.
"""

from __future__ import annotations

import numpy as np

from lmtool.config import Sampling
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import FloatArray, IntArray, LanguageModel

PIECE = 1 << 22  # probabilities that exist at once


def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    context: IntArray,
    sampling: Sampling,
    *,
    count: int,
    length: int,
    seed: int,
) -> list[list[int]]:
    """The ids of `count` texts that go on from a context `[C]`, each to before its `</s>` or of `length` words.

    The random numbers of text k depend on seed and k alone: with a larger count or length come more texts or longer
    ones, and the others stay.
    """
    draws = np.stack([np.random.default_rng([seed, k]).random(length) for k in range(count)])  # [N, length]
    contexts = np.repeat(context[None], count, axis=0)
    texts: list[list[int]] = [[] for _ in range(count)]
    going = np.arange(count)
    rows = max(1, PIECE // len(vocabulary))
    for step in range(length):
        words = np.concatenate(
            [
                _next_words(model, contexts[some], sampling, draws[some, step], vocabulary.bos)
                for some in (going[first : first + rows] for first in range(0, len(going), rows))
            ]
        )
        contexts[going] = np.concatenate([contexts[going], words[:, None]], axis=1)[:, 1:]
        stays = words != (-1 if vocabulary.eos is None else vocabulary.eos)
        going, words = going[stays], words[stays]
        for text, word in zip(going.tolist(), words.tolist(), strict=True):
            texts[text].append(word)
        if len(going) == 0:
            break
    return texts


def _next_words(model: LanguageModel, contexts: IntArray, sampling: Sampling, draws: FloatArray, bos: int) -> IntArray:
    log_p = model.log_dist(contexts)
    log_p[:, bos] = -np.inf  # what a model keeps for types in no vocabulary stands there
    if sampling.temperature == 0:
        return np.asarray(log_p.argmax(axis=1))
    return draw(choices(log_p, sampling), draws)


def choices(log_p: FloatArray, sampling: Sampling) -> FloatArray:
    """What words are drawn from, `[N, V]`, rows of sum 1, from log-probabilities `[N, V]`; the temperature is not 0.

    First p^(1/T), then the k likeliest (of equal ones the first), then of these the fewest that have a share of top_p
    (Holtzman et al. 2020, section 3.1).
    """
    with np.errstate(over="ignore"):  # the smallest temperatures leave the likeliest words alone
        p = np.exp((log_p - log_p.max(axis=1, keepdims=True)) / sampling.temperature)
    if sampling.top_k is None and sampling.top_p in (None, 1):
        return np.asarray(p / p.sum(axis=1, keepdims=True))
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    if sampling.top_k is not None:
        ranked[:, sampling.top_k :] = 0
    ranked /= ranked.sum(axis=1, keepdims=True)
    if sampling.top_p is not None and sampling.top_p < 1:
        before = ranked[:, :-1].cumsum(axis=1)
        ranked[:, 1:][before >= sampling.top_p] = 0
        ranked /= ranked.sum(axis=1, keepdims=True)
    np.put_along_axis(p, order, ranked, axis=1)
    return np.asarray(p)


def draw(p: FloatArray, draws: FloatArray) -> IntArray:
    """A word `[N]` from each row of p `[N, V]`: where its distribution function passes draws `[N]`, in [0, 1)."""
    total = p.cumsum(axis=1)
    # Below the whole sum, which the product may round up to, so that the word found has a probability above 0.
    at = np.minimum(draws * total[:, -1], np.nextafter(total[:, -1], 0))
    return np.asarray((total <= at[:, None]).sum(axis=1))
