"""Scores of many texts: for each the number of its tokens and OOVs, and log p, by one model or by two.

The difference of two models' cross-entropies selects text that is like the first one's (Moore & Lewis 2010).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.data.encode import EncodedTexts, TextBlock, TextEncoder
from lmtool.data.text_form import TextForm
from lmtool.data.text_records import blocks_of
from lmtool.errors import UserError
from lmtool.evaluation.score import score
from lmtool.language_model import FloatArray, IntArray, LanguageModel

Rows = npt.NDArray[Any]  # of TEXT, or of TWO where there are two models
TEXT = np.dtype([("tokens", np.int64), ("oov", np.int64), ("log_prob", np.float64)])
TWO = np.dtype([*TEXT.descr, ("oov_out", np.int64), ("log_prob_out", np.float64)])


class ScoringModel(NamedTuple):
    """A model, and how text becomes its words. name: of the run, for messages."""

    model: LanguageModel
    form: TextForm
    name: str


@dataclass(frozen=True, slots=True)
class TextScore:
    """The score of one text, of so many tokens: its words and `</s>` for each of its lines.

    oov: the tokens out of the vocabulary. log_prob: the sum over the tokens, natural. perplexity: exp(-log_prob /
    tokens); None without tokens. difference: the cross-entropy under the first model less that under the second, in
    nats per token: the lower, the more the text is like the first one's; None without tokens or a second model.
    """

    tokens: int
    oov: int
    log_prob: float
    perplexity: float | None
    difference: float | None = None


class TextsScorer:
    """Scores blocks of texts. Each text stands for itself: no context crosses it."""

    def __init__(self, model: ScoringModel, out: ScoringModel | None = None) -> None:
        """out: the second model, of other text, where there are two.

        Raises UserError for a model with a cache, and for two that cut text in different ways.
        """
        for each in [model] if out is None else [model, out]:
            if each.model.dynamic:
                raise UserError(
                    f"{each.name} has a cache, which learns from the texts before: their scores would depend on their "
                    "order; take the mixture without it"
                )
        if out is not None and _cut(model.form) != _cut(out.form):
            raise UserError(f"{model.name} and {out.name} do not cut text into the same tokens: take two that do")
        self.dtype = TEXT if out is None else TWO
        self._models = (model,) if out is None else (model, out)
        self._encoders = [TextEncoder(each.form) for each in self._models]
        self.same_words = len({each.form.vocabulary.fingerprint() for each in self._models}) == 1
        self._shared = self.same_words and len({each.form.lowercase for each in self._models}) == 1

    def __call__(self, block: TextBlock, *, progress: bool = False) -> Rows:
        """A row for each text, in their order. progress: whether slow models show bars."""
        rows = np.empty(len(block.ends), dtype=self.dtype)
        texts = self._encoders[0](block)
        rows["tokens"], rows["oov"] = np.diff(texts.documents), texts.oov
        rows["log_prob"] = _log_probs(self._models[0].model, texts, progress=progress)
        if len(self._models) == 2:
            texts = texts if self._shared else self._encoders[1](block)
            rows["oov_out"] = texts.oov
            rows["log_prob_out"] = _log_probs(self._models[1].model, texts, progress=progress)
        return rows


def _cut(form: TextForm) -> tuple[bool, bool, bool, bool, str | None]:
    """What decides where tokens begin and end."""
    tokeniser = None if form.subwords is None else form.subwords.json
    return form.chars, form.tags, form.vocabulary.eos is not None, form.blank_lines, tokeniser


def _log_probs(model: LanguageModel, texts: EncodedTexts, *, progress: bool) -> FloatArray:
    """log p of each text, natural, `[D]`; 0 for one without tokens."""
    if not texts.split.tokens:
        return np.zeros(len(texts.oov))
    return sums(score(model, texts.split, progress=progress).log_prob, texts.documents)


def sums(values: FloatArray, offsets: IntArray) -> FloatArray:
    """The sums of values `[N]` from each of the offsets `[D + 1]` to before the next, `[D]`."""
    total = np.zeros(len(offsets) - 1)
    some = np.flatnonzero(np.diff(offsets))
    if len(some):
        total[some] = np.add.reduceat(values, offsets[some])
    return total


def perplexities(rows: Rows) -> FloatArray:
    """exp(-log p / tokens) of each text, nan for one without tokens."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(rows["tokens"] > 0, np.exp(-rows["log_prob"] / rows["tokens"]), np.nan)


def differences(rows: Rows) -> FloatArray:
    """The difference of the two models' cross-entropies in nats per token, that of the first model less that of the
    second; nan for a text without tokens, and for one that both give no probability.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((rows["log_prob_out"] - rows["log_prob"]) / rows["tokens"])


def criterion(rows: Rows) -> FloatArray:
    """What texts are selected by, the lower the better: the difference where there are two models, else perplexity."""
    return differences(rows) if rows.dtype == TWO else perplexities(rows)


def scores_of(texts: Iterable[str], scorer: TextsScorer) -> Iterator[TextScore]:
    """The scores of texts in their order, as they come, some megabytes at a time."""
    for block in blocks_of(texts):
        rows = scorer(block)
        columns = [rows["tokens"], rows["oov"], rows["log_prob"], perplexities(rows)]
        columns += [differences(rows)] if scorer.dtype == TWO else []
        for tokens, *rest in zip(*(column.tolist() for column in columns), strict=True):
            oov, log_prob, *found = rest
            yield TextScore(tokens, oov, log_prob, *(value if value == value else None for value in found))
