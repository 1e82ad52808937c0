"""A model and a split become scores: one log-probability for each predicted token. The rest is arithmetic."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lmtool.data.corpus import Split
from lmtool.errors import UserError
from lmtool.language_model import Choosing, LanguageModel, TextScorer, Unnormalised
from lmtool.system import parallel
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.terminal import token_bar

CHUNK = 1 << 16  # tokens scored at once: bounds the memory of the contexts, not the result
MOST_NATS = 709.0  # whose exp is a float64
DISTS = 256  # whole distributions that are held at once
READ_ALONE = "each line was read alone; across_sentences=true reads the lines as one text"


@dataclass(frozen=True, slots=True)
class Scores:
    """Natural log-probabilities `[N]` of a split's predicted tokens, in the order of the text. seconds: they took."""

    log_prob: FloatArray
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The results of `lmtool eval` for a split, by the names of result.json.

    perplexity: exp(-mean log p) over all predicted tokens; perplexity_without_oov: without the tokens that are not in
    the vocabulary, None where there are no others. perplexity_per_word: exp(-log_prob / the words and sentence ends of
    the text), whatever its tokens are; bits_per_word: by tokens; bits_per_character: by the characters of the raw text.
    None where these numbers are not known. log_prob: the sum, in nats. accuracy: the share of tokens that are the most
    likely word, None where it was not computed. cloze: of the split's cloze questions, None without them.
    """

    split: str
    tokens: int
    oov: int
    perplexity: float
    perplexity_without_oov: float | None
    perplexity_per_word: float | None
    bits_per_word: float
    bits_per_character: float | None
    log_prob: float
    seconds: float
    tokens_per_second: float
    accuracy: float | None
    cloze: dict[str, float] | None

    def as_json(self) -> dict[str, Any]:
        """The report for result.json: accuracy and cloze only where they are not None, inf as null."""
        optional = ("accuracy", "cloze")
        values = {key: value for key, value in asdict(self).items() if key not in optional or value is not None}
        if self.cloze is not None:
            values["cloze"] = finite_or_null(self.cloze)
        return finite_or_null(values)


class Scored(Protocol):
    """A function that returns a model's log-probabilities `[N]` of the tokens of a split."""

    def __call__(self, model: LanguageModel, split: Split, /) -> FloatArray: ...


@runtime_checkable
class SplitScorer(Protocol):
    """A model made of others, which scores running text from their scores, each computed in its fastest way."""

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """log p of each predicted token, `[N]`. scored: returns those of a member."""


@runtime_checkable
class Dynamic(Protocol):
    """A dynamic model that has whole distributions for running text."""

    def log_dist_split(self, split: Split, first: int, last: int) -> FloatArray:
        """Log-probabilities of all words before the tokens `first` to `last` - 1 of a text that is read from its
        beginning, `[last - first, V]`."""


def require_across(model: LanguageModel, eos: int | None, name: str) -> None:
    """Raise UserError if a model of sentences cannot read on from one to the next. eos: the id of `</s>`, if any."""
    if eos is not None and not model.across_sentences:
        raise UserError(
            f"across_sentences=true: {name} reads single sentences; leave it out, or take a network that was trained "
            "with model.across_sentences=true"
        )


def reads_across(model: LanguageModel, split: Split) -> bool | None:
    """Return whether contexts cross the sentences of a split; None for a model that reads single sentences."""
    return not split.independent_sentences if model.across_sentences else None


def finite_or_null(values: dict[str, Any]) -> dict[str, Any]:
    """The values with None in place of inf and nan, which JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def score(
    model: LanguageModel,
    split: Split,
    *,
    progress: bool = False,
    unnormalised: bool = False,
    between: tuple[int, int] | None = None,
    scored: Scored | None = None,
) -> Scores:
    """Score the predicted tokens of a split. between: only those from the first number to the second - 1.

    unnormalised: with scores that sum to one only approximately; raises UserError for a model that has none. scored:
    returns the scores of a mixture's members, where they are known already.
    """
    start = time.perf_counter()
    if unnormalised and not isinstance(model, Unnormalised):
        raise UserError("unnormalised=true: this model has no scores that sum to one without a sum over all words")
    start_at, end_at = between or (0, split.tokens)
    if isinstance(model, SplitScorer) and between is None:
        of_member = scored or (lambda member, text: score(member, text, progress=progress).log_prob)
        log_prob = model.log_prob_split(split, of_member)
        return Scores(log_prob, time.perf_counter() - start)
    if isinstance(model, TextScorer) and between is None:
        return Scores(model.log_prob_text(split.ids, split.offsets), time.perf_counter() - start)
    split = split.as_stream(model.across_sentences)
    log_prob = np.empty(end_at - start_at, dtype=np.float64)
    with token_bar(len(log_prob), shown=progress) as bar:
        for first in range(start_at, end_at, CHUNK):
            parallel.follow_load()
            last = min(first + CHUNK, end_at)
            contexts = split.contexts(first, last, model.context_size)
            targets = split.ids[first:last].astype(np.int64)
            of_targets = model.unnormalised if unnormalised and isinstance(model, Unnormalised) else model.log_prob
            log_prob[first - start_at : last - start_at] = of_targets(contexts, targets)
            bar.update(last - first)
    return Scores(log_prob, time.perf_counter() - start)


def accuracy(model: LanguageModel, contexts: IntArray, targets: IntArray) -> FloatArray:
    """1 where the most likely word after a context `[N, C]` is its target `[N]`, else 0: float64 `[N]`.

    Of words that tie the first by id counts; `<s>` never does.
    """
    if isinstance(model, Choosing) and len(contexts):
        correct: FloatArray = (model.likeliest(contexts) == targets).astype(np.float64)
        return correct
    hits = [
        model.log_dist(contexts[first : first + DISTS])[:, :-1].argmax(axis=1) == targets[first : first + DISTS]
        for first in range(0, len(contexts), DISTS)
    ]
    return np.concatenate([np.empty(0), *hits])


def split_accuracy(model: LanguageModel, split: Split, *, progress: bool = False) -> float:
    """The share of a split's tokens, all of them, that are the most likely word after their context.

    Raises UserError for a mixture with a dynamic member, which has no distributions for running text.
    """
    if model.dynamic and not isinstance(model, Dynamic):
        raise UserError("accuracy=true: a mixture with a member that has a cache has no accuracy; evaluate that member")
    hits = 0.0
    text = split.as_stream(model.across_sentences)
    with token_bar(split.tokens, shown=progress) as bar:
        for first in range(0, split.tokens, 4096):
            last = min(first + 4096, split.tokens)
            targets = split.ids[first:last].astype(np.int64)
            if isinstance(model, Dynamic):
                dist = (model.log_dist_split(split, at, min(at + DISTS, last)) for at in range(first, last, DISTS))
                hits += float((np.concatenate([d[:, :-1].argmax(axis=1) for d in dist]) == targets).sum())
            else:
                hits += float(accuracy(model, text.contexts(first, last, model.context_size), targets).sum())
            bar.update(last - first)
    return hits / split.tokens


def log_z(model: LanguageModel, split: Split, most: int = 8192) -> dict[str, float] | None:
    """Mean and standard deviation of log Z, in nats, over at most `most` contexts of a split, evenly spread.

    None for a model whose scores always sum to one.
    """
    if not isinstance(model, Unnormalised):
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, min(most, split.tokens)).astype(np.int64))
    sums = model.log_z(split.as_stream(model.across_sentences).windows(index, model.context_size)[0])
    if sums is None:
        return None
    return {"contexts": len(index), "mean": float(sums.mean()), "std": float(sums.std())}


def perplexity(log_prob: FloatArray) -> float:
    """exp(-mean log p) of natural log-probabilities `[N]`, summed in float64; inf where one of them is -inf."""
    with np.errstate(over="ignore"):
        return float(np.exp(-log_prob.mean(dtype=np.float64)))


def report(
    split_name: str,
    split: Split,
    scores: Scores,
    cloze: dict[str, float] | None = None,
    accuracy: float | None = None,
) -> Report:
    """The report of a split's scores. split_name: as the user knows it."""
    log_prob = scores.log_prob
    total = float(log_prob.sum(dtype=np.float64))
    known = np.ones(split.tokens, dtype=bool)
    known[split.oov_positions] = False
    return Report(
        split=split_name,
        tokens=split.tokens,
        oov=int(split.tokens - known.sum()),
        perplexity=perplexity(log_prob),
        perplexity_without_oov=perplexity(log_prob[known]) if known.any() else None,
        perplexity_per_word=_per_word(split, log_prob, total),
        bits_per_word=-total / split.tokens / math.log(2),
        bits_per_character=-total / split.characters / math.log(2) if split.characters else None,
        log_prob=total,
        seconds=scores.seconds,
        tokens_per_second=split.tokens / max(scores.seconds, 1e-9),
        accuracy=accuracy,
        cloze=cloze,
    )


def _per_word(split: Split, log_prob: FloatArray, total: float) -> float | None:
    if split.words is None or split.words == split.tokens:
        return perplexity(log_prob) if split.words is not None else None
    return math.exp(-total / split.words) if -total / split.words < MOST_NATS else math.inf
