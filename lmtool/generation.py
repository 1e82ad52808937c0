"""Texts sampled from a language model, word by word.

The distribution of the next word may be sharpened or flattened by a temperature, p^(1/T), and cut to its most likely
words by top-k sampling (Fan, Lewis & Dauphin 2018) and nucleus sampling, top-p (Holtzman et al. 2020).

Legend of shapes: N texts, C words of context, V vocabulary entries.
"""

from __future__ import annotations

import numpy as np

from lmtool.config.model_verbs import Sampling
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray, IntArray

CHUNK = 1 << 22  # probabilities that are held at once


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
    """The ids of `count` continuations of a context `[C]`, each up to its `</s>`, which is left out, or `length` words.

    The random numbers of text k depend on seed and k alone: a larger count or length adds texts or lengthens them, and
    changes nothing else.
    """
    draws = np.stack([np.random.default_rng([seed, k]).random(length) for k in range(count)])  # [N, length]
    contexts = np.repeat(context[None], count, axis=0)
    texts: list[list[int]] = [[] for _ in range(count)]
    unfinished = np.arange(count)
    rows = max(1, CHUNK // len(vocabulary))
    for step in range(length):
        words = np.concatenate(
            [
                _next_words(model, contexts[chunk], sampling, draws[chunk, step], vocabulary.bos)
                for chunk in (unfinished[first : first + rows] for first in range(0, len(unfinished), rows))
            ]
        )
        contexts[unfinished] = np.concatenate([contexts[unfinished], words[:, None]], axis=1)[:, 1:]
        goes_on = words != (-1 if vocabulary.eos is None else vocabulary.eos)
        unfinished, words = unfinished[goes_on], words[goes_on]
        for text, word in zip(unfinished.tolist(), words.tolist(), strict=True):
            texts[text].append(word)
        if len(unfinished) == 0:
            break
    return texts


def _next_words(model: LanguageModel, contexts: IntArray, sampling: Sampling, draws: FloatArray, bos: int) -> IntArray:
    log_p = model.log_dist(contexts)
    log_p[:, bos] = -np.inf  # there stands what a model reserves for types in no vocabulary
    if sampling.temperature == 0:
        return np.asarray(log_p.argmax(axis=1))
    return draw(sampling_distribution(log_p, sampling), draws)


def sampling_distribution(log_p: FloatArray, sampling: Sampling) -> FloatArray:
    """The distributions that words are drawn from, `[N, V]`, rows of sum 1, for log-probabilities `[N, V]`.

    In this order: the temperature T > 0, p^(1/T); top-k, the k most likely words (of equally likely ones the first by
    id); top-p, the fewest of the most likely words whose probabilities sum to top_p or more (the nucleus, Holtzman et
    al. 2020, section 3.1).
    """
    with np.errstate(over="ignore"):  # at the smallest temperatures only the most likely words remain
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
    """A word `[N]` from each row of p `[N, V]`, by inverting its distribution function at draws `[N]` in [0, 1)."""
    total = p.cumsum(axis=1)
    # Strictly below the total, which the product may round up to, so that the word has a probability above 0.
    at = np.minimum(draws * total[:, -1], np.nextafter(total[:, -1], 0))
    return np.asarray((total <= at[:, None]).sum(axis=1))
