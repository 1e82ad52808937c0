"""A line for each token, as SRILM's `ngram -ppl FILE -debug 2` prints them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from lmtool.data.vocabulary import BOS
from lmtool.evaluation.token_scores import Tokens
from lmtool.language_model import LN10
from lmtool.system.arrays import FloatArray, IntArray


def detail_lines(
    tokens: Tokens, log_prob: FloatArray, matched: IntArray | None, starts: IntArray, *, sentences: bool, name: str
) -> Iterator[str]:
    """The lines of all sentences and of the whole text.

    log_prob: natural, `[N]`. matched: `[N]`, the length of the longest n-gram that the model has for each token; None
    for a model without n-grams. starts: the tokens whose context is empty. sentences: whether the text has any. name:
    of the text. As in SRILM the numbers are p
    and log10 p, `ppl` counts the end of a sentence as a token and `ppl1` does not. Unlike in SRILM `<unk>` is a word
    like any other: it has a probability, and OOVs are counted but not left out; `zzz=<unk>` where the word is known.
    """
    oov = np.zeros(tokens.count, dtype=bool)
    oov[tokens.oov_positions] = True
    offsets = tokens.offsets.tolist()
    empty, unknown = set(starts.tolist()), iter(tokens.oov_words or ())
    for first, last in itertools.pairwise(offsets):
        words = [tokens.words[k] for k in tokens.ids[first:last].tolist()]
        for k in np.flatnonzero(oov[first:last]).tolist() if tokens.oov_words is not None else []:
            words[k] = f"{next(unknown)}={words[k]}"
        if sentences:
            yield " ".join(words[:-1])
        goes_on = first not in empty  # the context crosses the sentence's beginning
        before = [tokens.words[tokens.ids[first - 1]] if goes_on else BOS, *words[:-1]]
        for k, (word, previous, value) in enumerate(zip(words, before, log_prob[first:last].tolist(), strict=True)):
            length = "" if matched is None else f"[{matched[first + k]}gram] "
            more = "..." if k or goes_on else ""
            yield f"\tp( {word} | {previous} {more}) \t= {length}{math.exp(value):.7g} [ {value / LN10:.7g} ]"
        if sentences:
            yield from _summary("", 1, log_prob[first:last], int(oov[first:last].sum()))
            yield ""
    count = len(offsets) - 1 if sentences else 0
    yield from _summary(f"file {name}: ", count, log_prob, int(oov.sum()))


def _summary(name: str, sentences: int, log_prob: FloatArray, oov: int) -> Iterator[str]:
    words = len(log_prob) - sentences
    possible = log_prob[~np.isneginf(log_prob)]
    total = float(possible.sum()) / LN10
    yield f"{name}{sentences} sentences, {words} words, {oov} OOVs"
    zeros = len(log_prob) - len(possible)
    yield f"{zeros} zeroprobs, logprob= {total:.7g} ppl= {_power(total, len(possible))} ppl1= " + _power(
        total, len(possible) - sentences
    )


def _power(total: float, tokens: int) -> str:
    try:
        return f"{10 ** (-total / tokens):.7g}"
    except (ZeroDivisionError, OverflowError):
        return "undefined"
