"""A model and a split become scores: one log-probability for each predicted token. The rest is arithmetic."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lmtool.data.corpus import Split
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray
from lmtool.system.terminal import token_bar

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


def score(model: LanguageModel, split: Split, *, progress: bool = False, unnormalised: bool = False) -> Scores:
    """Score the predicted tokens of a split.

    unnormalised: by scores that sum to one only approximately; raises UserError for a model that has none.
    """
    start = time.perf_counter()
    if unnormalised:
        log_prob = model.score_tokens(split, 0, split.tokens, unnormalized=True, progress=progress)
    else:
        log_prob = model.score_text(split, progress=progress)
    return Scores(log_prob, time.perf_counter() - start)


def split_accuracy(model: LanguageModel, split: Split, *, progress: bool = False) -> float:
    """Return the share of a split's tokens, all of them, that are the most likely word after their context."""
    hits = 0
    with token_bar(split.tokens, shown=progress) as bar:
        step = DISTS if model.dynamic else 4096
        for first in range(0, split.tokens, step):
            last = min(first + step, split.tokens)
            if model.dynamic:  # its distributions depend on the text, not on contexts alone
                most_likely = model.log_dist_text(split, first, last)[:, :-1].argmax(axis=1)
            else:
                most_likely = model.argmax(model.contexts_of(split, np.arange(first, last))[0])
            hits += int((most_likely == split.ids[first:last]).sum())
            bar.update(last - first)
    return hits / split.tokens


def log_z(model: LanguageModel, split: Split, most: int = 8192) -> dict[str, float] | None:
    """Return mean and standard deviation of log Z, in nats, over at most `most` contexts of a split, evenly spread.

    None unless the model is self-normalised.
    """
    if not model.self_normalised:
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, min(most, split.tokens)).astype(np.int64))
    sums = model.log_z(model.contexts_of(split, index)[0])
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
