"""Drawing words from a model's distributions, sharpened or cut by a temperature, top-k sampling and nucleus sampling.

Legend of shapes: N distributions, C words in a context, V vocabulary entries.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cache

import numpy as np

from lmtool.config.verbs import Sampling
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import EOS
from lmtool.language_model import SAMPLED_PER_CHUNK, LanguageModel
from lmtool.system.arrays import FloatArray, IntArray, in_chunks

NO_TEXT = b"\xff"  # the bytes of <unk>, <s>, and control characters that train lacks: they are in no text
CONTROLS = {bytes([byte]) for byte in (*range(0x20), 0x7F)}


def continuations(
    model: LanguageModel, context: IntArray, eos: int | None, sampling: Sampling, *, count: int, length: int, seed: int
) -> list[list[int]]:
    """Sample `count` continuations of a context `[C]`, each up to its `</s>`, which is left out, or `length` words.

    The random numbers of text k depend on seed and k alone: a larger count or length only adds to the texts.
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


def in_whole_characters(model: LanguageModel, form: TextForm) -> LanguageModel:
    """Return the model of whole characters of a model of pieces; a model of words or letters as it is."""
    if form.subwords is None:
        return model
    known, counts = dict(zip(form.subwords.names, form.subwords.contents, strict=True)), form.vocabulary.counts.tolist()
    contents = [known.get(word, NO_TEXT) for word in form.vocabulary.words]
    contents = [NO_TEXT if c in CONTROLS and not n else c for c, n in zip(contents, counts, strict=True)]
    return WholeCharacters(
        model, [b"\n" if w == EOS else c for w, c in zip(form.vocabulary.words, contents, strict=True)]
    )


class WholeCharacters(LanguageModel):
    """A model in which a token has probability 0 if the text could not be UTF-8 after it, such as `</s>` after half a
    character, or if no text has it, such as `<unk>`; p of the others is renormalized. Where none is left, all tokens
    keep their probabilities.
    """

    vocabulary_size: int = 0
    context_size: int | None = None

    def __init__(self, model: LanguageModel, contents: Sequence[bytes]) -> None:
        """contents: the bytes of each token `[V]`."""
        self.model, self.vocabulary_size = model, model.vocabulary_size
        # A character has at most four bytes: that which a context ends in has begun in its last three tokens.
        self.context_size = None if model.context_size is None else max(model.context_size, 3)
        self._contents = contents
        self._following = cache(lambda begun: np.array([_may_begin(begun + content) for content in contents]))

    def log_dist(self, contexts: IntArray) -> FloatArray:
        size = self.model.context_size
        log_p = self.model.log_dist(contexts if size is None else contexts[:, contexts.shape[1] - size :])
        tails = [b"".join(self._contents[token] for token in context) for context in contexts[:, -3:].tolist()]
        begun = [tail[codecs.utf_8_decode(tail, "ignore", False)[1] :] for tail in tails]
        left = np.where([self._following(start) for start in begun], log_p, -np.inf)
        total = np.logaddexp.reduce(left, axis=1, keepdims=True)
        return np.where(np.isneginf(total), log_p, left - np.maximum(total, np.finfo(np.float64).min))


def _may_begin(text: bytes) -> bool:
    """Return whether a text in UTF-8 may begin with these bytes."""
    try:
        rest = text[codecs.utf_8_decode(text, "strict", False)[1] :]
    except UnicodeDecodeError:
        return False
    return not b"\xed\xa0" <= rest < b"\xee"  # surrogates, of which the codec reads on
