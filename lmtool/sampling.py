"""Drawing words from a model's distributions, sharpened or cut by a temperature, top-k sampling and nucleus sampling.

Legend of shapes: N distributions, C words in a context, V vocabulary entries.
"""

from __future__ import annotations

import numpy as np

from lmtool.config.verbs import Sampling
from lmtool.language_model import SAMPLED_PER_CHUNK, LanguageModel
from lmtool.system.arrays import FloatArray, IntArray, in_chunks


def continuations(
    model: LanguageModel, context: IntArray, eos: int | None, sampling: Sampling, *, count: int, length: int, seed: int
) -> list[list[int]]:
    """Sample `count` continuations of a context `[C]`, each up to its `</s>`, which is left out, or `length` words.

    The random numbers of text k depend on seed and k alone: a larger count or length only adds to the texts. eos: the
    id of `</s>`, or None.
    """
    draws = np.empty((count, length))  # first: too many are refused at once
    for k, row in enumerate(draws):
        row[:] = np.random.default_rng([seed, k]).random(length)
    contexts = np.repeat(context[None], count, axis=0)
    texts: list[list[int]] = [[] for _ in range(count)]
    unfinished = np.arange(count)
    for step in range(length):
        words = _next_words(model, contexts, draws[unfinished, step], sampling)
        contexts = np.concatenate([contexts, words[:, None]], axis=1)[:, int(model.context_size is not None) :]
        continues = words != (-1 if eos is None else eos)
        contexts, unfinished = contexts[continues], unfinished[continues]
        for text, word in zip(unfinished.tolist(), words[continues].tolist(), strict=True):
            texts[text].append(word)
        if len(unfinished) == 0:
            break
    return texts


def _next_words(model: LanguageModel, contexts: IntArray, draws: FloatArray, sampling: Sampling) -> IntArray:
    """Draw a word `[N]` after each of the contexts `[N, C]`, never `<s>`, at draws `[N]` in [0, 1)."""
    if sampling.temperature == 0:
        return model.argmax(contexts)
    words = []
    for rows in in_chunks(len(contexts), max(1, SAMPLED_PER_CHUNK // model.vocabulary_size)):
        log_dist = model.log_dist(contexts[rows])
        log_dist[:, -1] = -np.inf  # reserved for types in no vocabulary
        p = sampling_distribution(log_dist, sampling.temperature, sampling.top_k, sampling.top_p)
        words.append(draw(p, draws[rows]))
    return np.concatenate(words)


def sampling_distribution(
    log_p: FloatArray, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> FloatArray:
    """Return the distributions that words are drawn from, `[N, V]`, rows of sum 1, for log-probabilities `[N, V]`.

    Applied in this order: the temperature T > 0, p^(1/T); top-k, the k most likely words (of equally likely ones the
    first by id; Fan, Lewis & Dauphin 2018); top-p, the fewest of the most likely words whose probabilities sum to top_p
    or more (the nucleus, Holtzman et al. 2020, section 3.1).
    """
    with np.errstate(over="ignore"):  # at the smallest temperatures only the most likely words remain
        p = np.exp((log_p - log_p.max(axis=1, keepdims=True)) / temperature)
    if top_k is None and top_p in (None, 1):
        return np.asarray(p / p.sum(axis=1, keepdims=True))
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    if top_k is not None:
        ranked[:, top_k:] = 0
    ranked /= ranked.sum(axis=1, keepdims=True)
    if top_p is not None and top_p < 1:
        before = ranked[:, :-1].cumsum(axis=1)
        ranked[:, 1:][before >= top_p] = 0
        ranked /= ranked.sum(axis=1, keepdims=True)
    np.put_along_axis(p, order, ranked, axis=1)
    return np.asarray(p)


def draw(p: FloatArray, draws: FloatArray) -> IntArray:
    """Draw a word `[N]` from each row of p `[N, V]` by inverting its distribution function at draws `[N]` in [0, 1)."""
    total = p.cumsum(axis=1)
    # Strictly below the total, which the product may round up to, so that the word has a probability above 0.
    at = np.minimum(draws * total[:, -1], np.nextafter(total[:, -1], 0))
    return np.asarray((total <= at[:, None]).sum(axis=1))
