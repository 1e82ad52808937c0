"""A language model that is asked in text: how likely it is, what comes next, and for texts of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lmtool.config import Oov, Sampling
from lmtool.config.rules import require, require_seed, require_whole
from lmtool.data.corpus import Split
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.evaluation.score import score
from lmtool.generation import generate
from lmtool.language_model import FloatArray, IntArray, LanguageModel, Ranking


@dataclass(frozen=True, slots=True)
class TextModel:
    """A LanguageModel with the vocabulary and the form of its text.

    `oov` says what becomes of a word out of the vocabulary: "error", a UserError that names the nearest ones, or
    "unk". sentence_start=False: what stands before the text is not known; the context is filled up with `<unk>`.
    """

    model: LanguageModel
    form: TextForm

    @property
    def vocabulary(self) -> Vocabulary:
        """The words by id, commonest first, `<s>` last."""
        return self.form.vocabulary

    @property
    def context_size(self) -> int:
        """As LanguageModel.context_size."""
        return self.model.context_size

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        return self.model.log_prob(contexts, targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        return self.model.log_dist(contexts)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        return self.model.log_prob_candidates(contexts, candidates)

    def score(self, sentences: Iterable[str]) -> list[FloatArray]:
        """log p, natural, of each predicted token of each sentence: its words and, in data with sentences, `</s>`.

        A word out of the vocabulary is scored as `<unk>`, as `lmtool eval` does.
        """
        eos = [] if self.vocabulary.eos is None else [self.vocabulary.eos]
        ids = [np.append(self.form.encode(self.form.split(text), Oov.unk), eos) for text in sentences]
        sizes = [len(each) for each in ids]
        if not sum(sizes):
            return [np.empty(0) for _ in sizes]
        offsets = np.cumsum([0, *(size for size in sizes if size)])
        text = Split(
            np.concatenate(ids).astype(np.int64),
            offsets,
            np.empty(0, dtype=np.int64),
            0,
            self.vocabulary.bos,
            apart=True,
        )
        return np.split(score(self.model, text).log_prob, np.cumsum(sizes)[:-1])

    def predict(
        self, text: str = "", top: int = 10, *, sentence_start: bool = True, oov: str = "error"
    ) -> list[tuple[str, float]]:
        """The likeliest next words, at most `top`, with their probabilities; none that are 0.

        Raises UserError for a word out of the vocabulary and for settings out of range.
        """
        require_whole("top", top)
        context = self.context(self.ids(text, oov), sentence_start=sentence_start)
        words, log_p = likeliest(self.model, context[None], top, self.vocabulary.bos)
        pairs = zip(words[0].tolist(), np.exp(log_p[0]).tolist(), strict=True)
        return [(self.vocabulary.words[word], p) for word, p in pairs if p > 0]

    def generate(
        self,
        text: str = "",
        *,
        count: int = 5,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        sentence_start: bool = True,
        oov: str = "error",
    ) -> list[str]:
        """`count` texts that begin with `text` and go on to the sentence's end, or for `length` words.

        temperature, top_k, top_p: as Sampling. The same seed gives the same texts. Raises UserError for a word out of
        the vocabulary and for settings out of range.
        """
        sampling = Sampling(temperature, top_k, top_p)
        require_whole("count", count)
        require_whole("length", length)
        require_seed("seed", seed)
        begun = self.ids(text, oov)
        context = self.context(begun, sentence_start=sentence_start)
        drawn = generate(self.model, self.vocabulary, context, sampling, count=count, length=length, seed=seed)
        return [self.form.join([*begun.tolist(), *more]) for more in drawn]

    def ids(self, text: str, oov: str = "error") -> IntArray:
        """The ids of a text's words. Raises UserError for a word out of the vocabulary unless oov="unk"."""
        require(oov in ("error", "unk"), "oov", oov, "error or unk")
        return self.form.encode(self.form.split(text), Oov(oov))

    def context(self, ids: IntArray, *, sentence_start: bool = True) -> IntArray:
        """The context `[C]` that ids leave: the last of them, with `<s>` or `<unk>` in front where they are fewer."""
        size = self.context_size
        before = self.vocabulary.bos if sentence_start else self.vocabulary.unk
        return np.concatenate([np.full(size, before, dtype=np.int64), ids])[len(ids) :]


def likeliest(model: LanguageModel, contexts: IntArray, k: int, bos: int) -> tuple[IntArray, FloatArray]:
    """The k likeliest words `[N, k]` after contexts `[N, C]`, likeliest first, and their log p `[N, k]`; never `<s>`.

    There are fewer than k columns where there are fewer words.
    """
    k = min(k, bos)
    if isinstance(model, Ranking):
        return model.top(contexts, k)
    log_p = model.log_dist(contexts)[:, :bos]
    words = np.argsort(-log_p, axis=1, kind="stable")[:, :k]
    return words, np.take_along_axis(log_p, words, axis=1)
