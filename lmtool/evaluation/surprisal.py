"""Surprisals of words as a reader sees them, summed over their tokens; for pieces and characters, p of the whole word.

Tokenizers put the space before a word into its first piece, so that the product of a word's pieces is not the
probability that the word occurs and ends. With B, the tokens that begin a word or end the text,

    p(w | c) = p(t1 .. tk | c) * sum over b in B of p(b | c t1 .. tk) / sum over b in B of p(b | c)

sums to one over all words and the end of the text (Pimentel & Meister 2024, arXiv 2406.14561; Oh & Schuler 2024, arXiv
2406.10851).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lmtool.config.data import Normalize, WordRule
from lmtool.data.printed_words import words_of
from lmtool.data.split import Split
from lmtool.data.text_form import TextForm
from lmtool.data.tokenizer import is_white
from lmtool.data.word_rows import WordRows
from lmtool.errors import UserError, prefix_user_errors
from lmtool.evaluation.metrics import require_across, with_unk_as_oov
from lmtool.evaluation.text_scores import ScoringModel
from lmtool.language_model import SAMPLED_PER_CHUNK, LanguageModel
from lmtool.system.arrays import FloatArray, IntArray, in_chunks

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WordScores:
    """The scores of W words by one model.

    tokens: the tokens of each word.
    oov: int64 `[W]`, number of these tokens that are outside the vocabulary.
    surprisal: -log p, in nats, float64 `[W]`; nan for a word without tokens.
    entropy: entropy of the next token before each word, in nats.
    frequency: log of the relative frequency in train of the rarest token, with one added to each count; None for tokens
    that are not words and for models without counts.
    odd_starts: number of texts of characters whose first token is the less likely kind (with or without white space).
    """

    tokens: list[list[str]]
    oov: IntArray
    surprisal: FloatArray
    entropy: FloatArray | None
    frequency: FloatArray | None
    odd_starts: int


def score_words(
    scoring: ScoringModel,
    rows: WordRows,
    rule: WordRule,
    *,
    keep_punctuation: bool = True,
    entropy: bool = False,
    add_end: bool = False,
    across: bool = False,
    progress: bool = False,
) -> WordScores:
    """Return the scores of words.

    rule: the rule that turns a word into tokens. entropy: whether it is computed, from whole distributions. add_end:
    whether the last word of a sentence has the surprisal of `</s>`. across: whether contexts continue from each
    sentence of an item to the next, which a model of single sentences cannot.
    """
    model, form, name = scoring
    vocabulary, spaced = form.vocabulary, form.chars or form.subwords is not None
    if across:
        require_across(model, vocabulary, name)
    tokens = _tokens(form, rows, rule, keep_punctuation)
    if not any(tokens):
        raise UserError("no word has a token: set keep_punctuation=true, or another rule by words=")
    segments = rows.item_starts if across and vocabulary.eos is None else rows.starts
    # The units of the text are its words and, after each segment, white space and </s>, or, in pieces and characters
    # without sentences, a token that counts nowhere, so that there is a distribution at the end.
    units, is_end = tokens, np.zeros(len(tokens), dtype=bool)
    if vocabulary.eos is not None or spaced:
        units, is_end = _units(tokens, segments, rows, form), np.insert(is_end, segments[1:], True)
    lengths = np.array(list(map(len, units))) + is_end
    begins = np.cumsum(lengths) - lengths
    starts, empty = begins[~is_end], lengths[~is_end] == 0
    closes = np.zeros(int(lengths.sum()), dtype=bool)
    closes[(begins + lengths - 1)[is_end]] = True
    text = _text(form, units, closes, starts[segments[:-1]], starts[rows.item_starts[:-1]], across)
    text = with_unk_as_oov(text, model, vocabulary)
    unit_of = np.repeat(np.arange(len(is_end)), lengths)
    log_prob = np.bincount(unit_of, model.score_text(text, progress=progress), len(is_end)).astype(np.float64)
    entropies, odd_starts = None, 0
    if entropy or spaced:
        at_start = np.isin(begins, starts[segments[:-1]])
        fresh = at_start & [not (form.chars and unit and is_white(unit[0])) for unit in units]
        places = np.minimum(begins, text.tokens - 1)
        found, mass = _of_distributions(model, text, places, _masks(form) if spaced else None, fresh)
        entropies = np.where(empty, np.nan, found[~is_end]) if entropy else None
        odd_starts = int((at_start & (lengths > is_end) & (mass < math.log(0.5))).sum()) if form.chars else 0
        with np.errstate(invalid="ignore"):  # for a context after which no word can begin
            log_prob += np.where(is_end, 0.0, np.append(mass[1:], 0.0)) - mass
    surprisal = 0.0 - np.where(np.isnan(log_prob), -np.inf, log_prob)  # nan: after a text of probability 0
    word_surprisals = np.where(empty, np.nan, surprisal[~is_end])
    if add_end and vocabulary.eos is not None:
        final = segments[1:] - 1
        word_surprisals[final] = np.where(empty[final], 0.0, word_surprisals[final]) + surprisal[is_end]
    oov = np.bincount(unit_of[text.oov_positions], minlength=len(is_end))[~is_end]
    frequency = None
    if not spaced and vocabulary.counts[:-1].any():  # the last count is of <s>
        ids, counts = vocabulary.ids, vocabulary.counts
        rarest = [min((int(counts[ids[t]]) if t in ids else 0 for t in word), default=np.nan) for word in tokens]
        frequency = np.log((np.array(rarest) + 1) / (counts[:-1] + 1).sum())
    return WordScores(tokens, oov, word_surprisals, entropies, frequency, odd_starts)


def _text(
    form: TextForm, units: list[list[str]], is_end: Mask, segments: IntArray, items: IntArray, across: bool
) -> Split:
    """Return the text of units. is_end: `[N]`, tokens that end a unit of no word. segments, items: first tokens."""
    vocabulary = form.vocabulary
    flat = [token for unit in units for token in unit]
    ids = np.full(len(is_end), vocabulary.unk if vocabulary.eos is None else vocabulary.eos)
    ids[~is_end] = vocabulary.encode(flat)
    unknown = np.array([token not in vocabulary.ids for token in flat])
    offsets, documents = (np.unique(np.append(first, len(ids))) for first in (segments, items))
    oov = np.flatnonzero(~is_end)[unknown]
    return Split(ids, offsets, oov, 0, vocabulary.bos, independent_sentences=not across, documents=documents)


def _tokens(form: TextForm, rows: WordRows, rule: WordRule, keep_punctuation: bool) -> list[list[str]]:
    """Return the tokens of each word."""
    cache: dict[tuple[str, bool], list[str]] = {}
    last = set((rows.starts[1:] - 1).tolist())
    tokens = []
    for row, word in enumerate(rows.words):
        key = word, row in last
        if key not in cache:
            with prefix_user_errors(f"{rows.name}, row {row + 1}, {word!r}"):
                cache[key] = form.tokens(words_of(word, form, rule, keep_punctuation=keep_punctuation, is_last=key[1]))
        tokens.append(cache[key])
    return tokens


def _units(tokens: list[list[str]], segments: IntArray, rows: WordRows, form: TextForm) -> list[list[str]]:
    """Return the tokens of words and, after each segment, the tokens of the white space after its last word.

    With characters, each word is preceded by the white space of its line; in a table, by a space between words and a
    line end between sentences.
    """
    units, lines = [], set(rows.starts.tolist())
    spaces = rows.spaces if form.chars and form.rules.normalize is not Normalize.ccnet else None
    for first, last in pairwise(segments.tolist()):
        behind = None
        for row in range(first, last):
            if form.chars and tokens[row]:
                before, after = spaces[row] if spaces is not None else ("", "")
                if behind is not None:
                    before = f"{behind}\n{before}" if row in lines else behind + before or " "
                tokens[row] = [*before, *tokens[row]]
                behind = after
            units.append(tokens[row])
        units.append([*(behind or "")])
    return units


def _masks(form: TextForm) -> tuple[Mask, Mask]:
    """Return which tokens `[V]` begin a word or end the text: after a word, and where a text begins."""
    words, subwords = form.vocabulary.words, form.subwords
    if subwords is None:
        begin = np.array(list(map(is_white, words)))
        first = ~begin
    else:
        begin = np.array([subwords.additions.get(word, "").startswith(" ") for word in words])
        first = begin
    for mask in (begin, first):
        if form.vocabulary.eos is not None:
            mask[form.vocabulary.eos] = True
        mask[form.vocabulary.bos] = False
    return begin, first


def _of_distributions(
    model: LanguageModel, text: Split, places: IntArray, masks: tuple[Mask, Mask] | None, fresh: Mask
) -> tuple[FloatArray, FloatArray]:
    """Return the entropy before tokens `places` `[P]`, ascending, and log p of the tokens of a mask, both `[P]`.

    fresh: `[P]`, where a text begins: the second mask holds there.
    """
    entropy, mass = np.empty(len(places)), np.zeros(len(places))
    for part in in_chunks(len(places), max(1, SAMPLED_PER_CHUNK // model.vocabulary_size)):
        here = places[part]
        if model.in_order:
            first = int(here[0])
            log_dist = model.log_dist_text(text, first, int(here[-1]) + 1)[here - first]
        else:
            log_dist = model.log_dist(model.contexts_of(text, here)[0])
        p = np.exp(log_dist)
        with np.errstate(invalid="ignore", divide="ignore"):
            entropy[part] = 0.0 - np.nansum(p * log_dist, axis=1)  # 0 times -inf is nan
            if masks is not None:
                mass[part] = np.log(np.where(fresh[part], p @ masks[1], p @ masks[0]))
    return entropy, mass
