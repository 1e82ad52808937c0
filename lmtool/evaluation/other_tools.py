"""Scores in the formats of other tools: a word and a log-probability for each token, aligned with the tokens of a text.

- KenLM: the output of `query -v word MODEL < TEXT`, with or without the lines of sentences and the summary.
- SRILM: the output of `ngram -ppl TEXT -debug 2`, which `lmtool eval detail=true` prints too.
- TSV or CSV: a first line with the names of the columns. The columns `word`, one of `log10p`, `lnp` and `p`, and
  optionally `sum` are read; `sum` is the sum of the probabilities of all words at the position of this token.

Each file may be compressed (.gz, .xz, .bz2).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from lmtool.data.readers import read_text
from lmtool.data.tables import cells_of
from lmtool.data.vocabulary import BOS, EOS, UNK
from lmtool.errors import UserError
from lmtool.evaluation.token_scores import Tokens, quote_word
from lmtool.system.arrays import LN10, Array, FloatArray, IntArray, decimal

KENLM = re.compile(r"([^ \r]+)=[0-9]+ [0-9]+ ([^ \r]+)\r?")  # word=id, length of the n-gram, log10 p
KENLM_OTHER = re.compile(r"(Total: |Perplexity |OOVs:|Tokens:|RSSMax:|Name:)")
ARROW = re.compile(r"\) *\t?= ")  # in SRILM's lines, after the context
SCALES: dict[str, float | None] = {"log10p": LN10, "log10_p": LN10, "logprob": LN10, "lnp": 1.0, "ln_p": 1.0, "p": None}
SCALES |= {"log_prob": 1.0, "log_prob_nats": 1.0}
FORMATS = (
    "use the output of KenLM's query -v word or SRILM's -debug 2, or a table with the columns word and log10p, lnp or p"
)
Part = tuple[Tokens, FloatArray, IntArray | None, IntArray]  # part of a text, for detail_lines
SUM_SLACK = 1e-3  # maximum difference of a sum from 1, for probabilities with few digits
SLACK = 1e-6  # nats; a log-probability may be this far above 0 from rounding


@dataclass(frozen=True, slots=True)
class OtherScores:
    """The N tokens of a file: their words and natural log-probabilities `[N]`. normalized: whether the distributions
    sum to one, according to a column `sum`; None (unknown) without this column.
    """

    path: str
    words: list[str]
    log_prob: FloatArray
    normalized: bool | None = None


def read_scores(path: str) -> OtherScores:
    """Read a file of scores in any of the formats above."""
    content = read_text(path).rstrip("\n")
    lines = content.split("\n")
    normalized = None
    if any(line.startswith("\tp( ") for line in lines[:1000]):
        pairs = list(_srilm(lines, path))
    elif "=" in lines[0].split("\t")[0]:
        pairs = list(_kenlm(lines, path))
    else:
        pairs, normalized = _table(content, path)
    if not pairs:
        raise UserError(f"{path} has no scores: {FORMATS}")
    return OtherScores(path, [word for word, _ in pairs], np.array([value for _, value in pairs]), normalized)


def _kenlm(lines: list[str], path: str) -> Iterator[tuple[str, float]]:
    for number, line in enumerate(lines, start=1):
        label = ""  # label of a summary figure; the figure is the next field, possibly on a line of words
        for field in line.split("\t"):
            item = KENLM.fullmatch(field)
            if item:
                yield item[1], _nats(item[2], LN10, path, number)
            elif field and not label.endswith(":") and not KENLM_OTHER.match(field):
                raise UserError(f"{path}, line {number}: {field!r} is not word=id length log10p, as KenLM writes it")
            label = field


def _srilm(lines: list[str], path: str) -> Iterator[tuple[str, float]]:
    for number, line in enumerate(lines, start=1):
        if line.startswith("\tp( "):
            word, bar, rest = line.removeprefix("\tp( ").partition(" | ")
            before, opened, value = rest.rpartition(" [ ")
            value, closed, _ = value.partition(" ]")
            if not (bar and opened and closed and ARROW.search(before)) or " " in word:
                raise UserError(
                    f"{path}, line {number}: {line.strip()!r} is not p( word | ...) = p [ log10p ], as SRILM's"
                )
            yield word, _nats(value, LN10, path, number)


def _table(content: str, path: str) -> tuple[list[tuple[str, float]], bool | None]:
    """Return words and log-probabilities, and whether all numbers of a column `sum` are 1; None if one is missing."""
    names = [name.strip().lower() for name in cells_of(content.partition("\n")[0], path)[0]]
    values = [name for name in names if name in SCALES]
    # A column that numbers the tokens may also be called token.
    words = [name for name in ("word", "token") if name in names]
    if not words or len(values) != 1:
        raise UserError(f"{path}: unknown format; {FORMATS}")
    word, value, scale = names.index(words[0]), names.index(values[0]), SCALES[values[0]]
    rows = cells_of(content, path)[1]
    pairs = [(cells[word], _nats(cells[value], scale, path, number)) for number, cells in enumerate(rows, start=2)]
    sums = [cells[names.index("sum")].replace(",", ".") for cells in rows] if "sum" in names else [""]
    return pairs, bool(np.allclose(list(map(decimal, sums)), 1, rtol=0, atol=SUM_SLACK)) if all(sums) else None


def _nats(text: str, scale: float | None, path: str, line: int) -> float:
    """Return a natural log-probability. scale: nats per unit of the file, None for probabilities."""
    value = decimal(text.replace(",", "."))  # a decimal comma
    if scale is None and value >= 0:
        value = -math.inf if value == 0 else math.log(value)
    elif scale is not None:
        value *= scale
    else:
        value = math.nan
    if math.isnan(value):
        raise UserError(f"{path}, line {line}: {text!r} is not a probability or the logarithm of one")
    if not value <= SLACK:
        raise UserError(f"{path}, line {line}: {text} is above what a probability can be")
    return min(value, 0.0)


def align(scores: OtherScores, tokens: Tokens) -> FloatArray:
    """Return the log p `[N]` if they belong to these tokens. Words outside their vocabulary count as `<unk>`."""
    ids = tokens.encode(scores.words)
    both = min(len(ids), tokens.count)
    differ = np.flatnonzero(ids[:both] != tokens.ids[:both])
    if len(differ):
        at = int(differ[0])
        wrong = f"{tokens.place(at)} is {scores.words[at]!r}, should be {quote_word(tokens, at)}"
        raise UserError(f"{scores.path}: other tokens than were scored here: {wrong}")
    if len(ids) != tokens.count:
        sizes = f"{len(ids):,} tokens, {tokens.count:,} were scored here"
        raise UserError(f"{scores.path}: {sizes}; the first {both:,} agree")
    return scores.log_prob


def tokens_of_file(scores: OtherScores) -> Tokens:
    """Return the tokens of the file itself, in a vocabulary of its words; `</s>` ends sentences."""
    words = list(dict.fromkeys([UNK, *scores.words]))
    place = {word: k for k, word in enumerate(words)}
    ids = np.array([place[word] for word in scores.words], dtype=np.uint32)
    ends = [k + 1 for k, word in enumerate(scores.words) if word == EOS]
    offsets = np.array([0, *ends] if ends and ends[-1] == len(ids) else [0, *ends, len(ids)])
    return Tokens(ids, tuple(words), offsets, np.empty(0, dtype=np.int64))


def detail_lines(parts: Iterable[Part], *, sentences: bool, name: str, unk: int | None = None) -> Iterator[str]:
    """Yield the lines of `ngram -ppl TEXT -debug 2` for all sentences and for the whole text.

    parts: parts of the text, each with its tokens, log_prob, matched and starts. log_prob: natural log-probabilities,
    `[N]`. matched: `[N]`, the length of the longest n-gram of the model for each token; None for a model without
    n-grams. starts: the tokens whose context is empty. As in SRILM `ppl` counts the end of a sentence as a token,
    if it is predicted, `ppl1` does not. Unlike in SRILM, `<unk>` is an ordinary word: it has a probability, OOVs are
    counted but not left out, and printed as `zzz=<unk>`. unk: the id of `<unk>`, to print and count OOVs as SRILM does:
    only the tokens of probability 0.
    """
    count, ends, log_probs, oovs = 0, 0, [], []
    for tokens, log_prob, matched, starts in parts:
        outside = np.zeros(tokens.count, dtype=bool)
        outside[tokens.oov_positions] = True
        oov = outside if unk is None else np.isneginf(log_prob) & (tokens.ids == unk)
        offsets = tokens.offsets.tolist()
        empty, unknown = set(starts.tolist()), iter(tokens.oov_words or ())
        for first, last in itertools.pairwise(offsets):
            words = [tokens.words[k] for k in tokens.ids[first:last].tolist()]
            text = words if unk is None else words.copy()
            for k in np.flatnonzero(outside[first:last]).tolist() if tokens.oov_words is not None else []:
                text[k] = next(unknown) + (f"={words[k]}" if unk is None else "")
            end = int(words[-1:] == [EOS])
            if sentences:
                yield " ".join(text[: len(text) - end])
            crosses = first not in empty  # the context reaches into the sentence before
            before = [tokens.words[tokens.ids[first - 1]] if crosses else BOS, *words[:-1]]
            for k, (word, previous, value) in enumerate(zip(words, before, log_prob[first:last].tolist(), strict=True)):
                length = "" if matched is None else f"[{matched[first + k]}gram] "
                length = "[OOV] " if oov[first + k] and value == -math.inf else length
                more = "..." if k or crosses else ""
                yield f"\tp( {word} | {previous} {more}) \t= {length}{math.exp(value):.7g} [ {value / LN10:.7g} ]"
            if sentences:
                yield from _summary("", 1, end, log_prob[first:last], oov[first:last])
                yield ""
            count, ends = count + sentences, ends + end
        log_probs.append(log_prob)
        oovs.append(oov)
    yield from _summary(f"file {name}: ", count, ends, np.concatenate(log_probs), np.concatenate(oovs))


def _summary(name: str, sentences: int, ends: int, log_prob: FloatArray, oov: Array) -> Iterator[str]:
    possible = log_prob[~np.isneginf(log_prob)]
    total = float(possible.sum()) / LN10
    yield f"{name}{sentences} sentences, {len(log_prob) - ends} words, {int(oov.sum())} OOVs"
    zeros = int((np.isneginf(log_prob) & ~oov).sum())
    yield f"{zeros} zeroprobs, logprob= {total:.7g} ppl= {_power(total, len(possible))} ppl1= " + _power(
        total, len(possible) - ends
    )


def _power(total: float, tokens: int) -> str:
    try:
        return f"{10 ** (-total / tokens):.7g}"
    except (ZeroDivisionError, OverflowError):
        return "undefined"
