"""A model and a split become scores, one log-probability for each predicted token; the rest is arithmetic."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from tqdm import tqdm

from lmtool.data.cloze import Cloze
from lmtool.data.corpus import Split
from lmtool.errors import UserError
from lmtool.language_model import Choosing, FloatArray, IntArray, LanguageModel, TextScorer, Unnormalised, reads_across

CHUNK = 1 << 16  # tokens scored at once: bounds the memory of the contexts, not the result


@dataclass(frozen=True, slots=True)
class Scores:
    """Natural log-probabilities `[N]` of a split's predicted tokens, in the order of the text."""

    log_prob: FloatArray
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What `lmtool eval` says of a split; the names are those of result.json.

    `perplexity` is exp(-mean log p) over all predicted tokens; `perplexity_without_oov` leaves out the
    tokens that were not in the vocabulary (it is None where there are no others). `log_prob` is the sum,
    in nats. `bits_per_character` divides by the characters of the raw text. `accuracy` is the share of tokens that
    were the likeliest word, where it was asked for.
    """

    split: str
    tokens: int
    oov: int
    perplexity: float
    perplexity_without_oov: float | None
    bits_per_word: float
    bits_per_character: float | None
    log_prob: float
    seconds: float
    tokens_per_second: float
    accuracy: float | None
    cloze: dict[str, float] | None

    def as_json(self) -> dict[str, Any]:
        """The report for result.json: `accuracy` and `cloze` only where there are any, inf as null."""
        asked = ("accuracy", "cloze")
        values = {key: value for key, value in asdict(self).items() if key not in asked or value is not None}
        if self.cloze is not None:
            values["cloze"] = finite_or_null(self.cloze)
        return finite_or_null(values)


class Scored(Protocol):
    """A function that gives a model's log-probabilities `[N]` of the tokens of a split."""

    def __call__(self, model: LanguageModel, split: Split, /) -> FloatArray: ...


@runtime_checkable
class SplitScorer(Protocol):
    """A model made of others, which scores running text from what they give it, each in its own fastest way."""

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """`log p` of each of the predicted tokens, `[N]`; scored: gives those of a member."""


@runtime_checkable
class Dynamic(Protocol):
    """A model that changes with the text it has read."""

    def log_dist_split(self, split: Split, first: int, last: int) -> FloatArray:
        """The distributions before the tokens from `first` to before `last` of a text that is read from its
        beginning, `[last - first, V]`."""


def finite_or_null(values: dict[str, Any]) -> dict[str, Any]:
    """The values with None, which JSON has, in place of infinities, which it has not."""
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
    """Score every predicted token of a split, or those from the first of `between` to before the second.

    unnormalised: with scores that sum to one only about. scored: what the members of a mixture give the split, where
    it is known already. Raises UserError for a model that has none.
    """
    start = time.perf_counter()
    if unnormalised and not isinstance(model, Unnormalised):
        raise UserError("unnormalised=true: only a model trained with output=nce has scores that nearly sum to one")
    start_at, end_at = between or (0, split.tokens)
    if isinstance(model, SplitScorer) and between is None:
        of_member = scored or (lambda member, text: score(member, text, progress=progress).log_prob)
        found = model.log_prob_split(split, of_member)
        return Scores(found, time.perf_counter() - start)
    if isinstance(model, TextScorer) and between is None:
        return Scores(model.log_prob_text(split.ids, split.offsets), time.perf_counter() - start)
    split = split.seen(reads_across(model))
    log_prob = np.empty(end_at - start_at, dtype=np.float64)
    with tqdm(total=len(log_prob), unit=" tokens", unit_scale=True, disable=not progress, leave=False) as bar:
        for first in range(start_at, end_at, CHUNK):
            last = min(first + CHUNK, end_at)
            contexts = split.contexts(first, last, model.context_size)
            answer = model.unnormalised if unnormalised and isinstance(model, Unnormalised) else model.log_prob
            log_prob[first - start_at : last - start_at] = answer(contexts, split.ids[first:last].astype(np.int64))
            bar.update(last - first)
    return Scores(log_prob, time.perf_counter() - start)


def accuracy(model: LanguageModel, contexts: IntArray, targets: IntArray) -> FloatArray:
    """1 where the likeliest word after a context `[N, C]` is its target `[N]`, else 0: `[N]`. Of words that tie the
    first counts, and `<s>` is none.
    """
    if isinstance(model, Choosing) and len(contexts):
        chosen: FloatArray = (model.likeliest(contexts) == targets).astype(np.float64)
        return chosen
    hits = [
        model.log_dist(contexts[first : first + 256])[:, :-1].argmax(axis=1) == targets[first : first + 256]
        for first in range(0, len(contexts), 256)
    ]
    return np.concatenate([np.empty(0), *hits])


def split_accuracy(model: LanguageModel, split: Split, *, progress: bool = False) -> float:
    """The share of a split's tokens that are the likeliest word after their context: exact, over all of them.

    Raises UserError for a mixture of which some member is dynamic, which has no distributions for running text.
    """
    if getattr(model, "dynamic", False) and not isinstance(model, Dynamic):
        raise UserError(
            "accuracy=true: a mixture in which another one with a cache is mixed has none; evaluate that one"
        )
    hits = 0.0
    text = split.seen(reads_across(model))
    with tqdm(total=split.tokens, unit=" tokens", unit_scale=True, disable=not progress, leave=False) as bar:
        for first in range(0, split.tokens, 4096):
            last = min(first + 4096, split.tokens)
            targets = split.ids[first:last].astype(np.int64)
            if isinstance(model, Dynamic):
                dist = (model.log_dist_split(split, at, min(at + 256, last)) for at in range(first, last, 256))
                hits += float((np.concatenate([d[:, :-1].argmax(axis=1) for d in dist]) == targets).sum())
            else:
                hits += float(accuracy(model, text.contexts(first, last, model.context_size), targets).sum())
            bar.update(last - first)
    return hits / split.tokens


def log_z(model: LanguageModel, split: Split, most: int = 8192) -> dict[str, float] | None:
    """Mean and standard deviation of log Z over at most so many contexts of a split, evenly spread; None where Z is
    always 1.
    """
    if not isinstance(model, Unnormalised):
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, min(most, split.tokens)).astype(np.int64))
    found = model.log_z(split.seen(reads_across(model)).windows(index, model.context_size)[0])
    if found is None:
        return None
    return {"contexts": len(index), "mean": float(found.mean()), "std": float(found.std())}


def perplexity(log_prob: FloatArray) -> float:
    """exp(-mean log p) of natural log-probabilities, summed in float64; inf where one of them is -inf."""
    with np.errstate(over="ignore"):
        return float(np.exp(-log_prob.mean(dtype=np.float64)))


def report(
    split_name: str,
    split: Split,
    scores: Scores,
    cloze: dict[str, float] | None = None,
    accuracy: float | None = None,
) -> Report:
    """Sum up the scores of a split."""
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
        bits_per_word=-total / split.tokens / math.log(2),
        bits_per_character=-total / split.characters / math.log(2) if split.characters else None,
        log_prob=total,
        seconds=scores.seconds,
        tokens_per_second=split.tokens / max(scores.seconds, 1e-9),
        accuracy=accuracy,
        cloze=cloze,
    )


def cloze_log_prob(model: LanguageModel, cloze: Cloze, bos: int) -> FloatArray:
    """Log-probabilities `[Q, K]` of the candidates of every question, not renormalised over them."""
    contexts: IntArray = cloze.contexts_matrix(model.context_size, bos)
    found = [
        model.log_prob_candidates(contexts[first : first + 1024], cloze.candidates[first : first + 1024])
        for first in range(0, len(contexts), 1024)
    ]
    return np.concatenate(found)


def cloze_report(log_prob: FloatArray, answers: IntArray) -> dict[str, float]:
    """Score cloze questions (CS287 HW3): p renormalised over the candidates of each question.

    log_prob: `[Q, K]`; answers: `[Q]`, the answer's place among the candidates. A candidate that stands
    several times is one class each time, as in the course's own scoring.
    """
    if (answers < 0).any():
        raise UserError("the cloze questions of this split come without their answers: nothing to score")
    normalised = over_candidates(log_prob)
    answer = normalised[np.arange(len(answers)), answers]
    return {
        "questions": len(answers),
        "perplexity": perplexity(answer),
        "accuracy": float((normalised.argmax(axis=1) == answers).mean()),
    }


def over_candidates(log_prob: FloatArray) -> FloatArray:
    """Log-probabilities `[Q, K]` renormalised over the K candidates; all alike where none has any probability."""
    largest = log_prob.max(axis=1, keepdims=True)
    shifted = np.where(np.isneginf(largest), 0.0, log_prob - np.where(np.isneginf(largest), 0.0, largest))
    found: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def save_cloze(path: Path, log_prob: FloatArray) -> None:
    """The competition's CSV (CS287 HW3): a row a question, its number from 1 on and the candidates' probabilities."""
    from lmtool.system.files import written_whole

    p = np.exp(over_candidates(log_prob))
    rows = [f"{k},{','.join(f'{value:.9g}' for value in row)}" for k, row in enumerate(p.tolist(), start=1)]
    header = ",".join(["ID", *(f"Class{k}" for k in range(1, p.shape[1] + 1))])
    with written_whole(path) as temporary:
        temporary.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
