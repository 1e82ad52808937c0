"""A language model that takes and returns text; what `lmtool.load` and `lmtool.train` return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lmtool.config.model_verbs import Oov, Sampling
from lmtool.config.rules import require, require_seed, require_whole
from lmtool.data.corpus import Split
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.evaluation.score import score
from lmtool.generation import generate
from lmtool.language_model import FloatArray, IntArray, LanguageModel, Ranking


@dataclass(frozen=True, slots=True)
class TextModel:
    """A language model with its vocabulary and the rules by which text becomes words.

    model: the LanguageModel itself. form: how text is split into words. In methods that take text, `oov` says what a
    word out of the vocabulary becomes: "error" raises a UserError that names the closest words, "unk" takes `<unk>`;
    `sentence_start=False` says that the text does not begin a sentence: the missing context is `<unk>` in place of
    `<s>`.
    """

    model: LanguageModel
    form: TextForm

    @property
    def vocabulary(self) -> Vocabulary:
        """The words by id, most frequent first, `<s>` last, and their counts `[V]` in train."""
        return self.form.vocabulary

    @property
    def context_size(self) -> int:
        """C, the number of words before the predicted one that the model reads."""
        return self.model.context_size

    @property
    def normalised(self) -> bool:
        """Whether each distribution sums to one."""
        return self.model.normalised

    @property
    def dynamic(self) -> bool:
        """Whether the model changes as it reads, as one with a cache does."""
        return self.model.dynamic

    @property
    def across_sentences(self) -> bool:
        """Whether contexts go on into the sentences before."""
        return self.model.across_sentences

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """log p(target | context), natural, float64 `[N]`.

        contexts: int64 ids `[N, C]`, oldest word first, left-padded with `<s>`. targets: int64 ids `[N]`.
        """
        return self.model.log_prob(contexts, targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """The natural log-probabilities of all words after contexts int64 `[N, C]`: float64 `[N, V]`.

        The log-sum-exp of each row is 0. The entry of `<s>`, the last one, is the probability that the model reserves
        for types in no vocabulary.
        """
        return self.model.log_dist(contexts)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p(candidate | context), natural, float64 `[N, K]`, not renormalised over the candidates.

        contexts: int64 ids `[N, C]`, oldest word first, left-padded with `<s>`. candidates: int64 ids `[N, K]`.
        """
        return self.model.log_prob_candidates(contexts, candidates)

    def score(self, sentences: Iterable[str]) -> list[FloatArray]:
        """The natural log-probability of each token of each sentence: a float64 array `[tokens]` for each of them.

        The tokens of a sentence are its words and, where the model's data have sentences, `</s>`. A word out of the
        vocabulary counts as `<unk>`, as in `lmtool eval`. Raises UserError for a sentence with a line end within it or
        with `<s>` or `</s>` as a word.
        """
        eos = [] if self.vocabulary.eos is None else [self.vocabulary.eos]
        ids = [np.append(self.form.encode(self.form.split(text), Oov.unk), eos) for text in sentences]
        sizes = [len(sentence) for sentence in ids]
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
        """The most likely next words and their probabilities, at most `top` of them, none with probability 0.

        sentence_start, oov: see the class. Raises UserError for a word out of the vocabulary and for a setting out of
        its range.
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
        """Sample `count` texts that begin with `text` and end with the sentence, or after `length` more words.

        temperature: words are drawn from p^(1/temperature); 0 takes the most likely word. top_k: only from the k most
        likely words (top-k sampling, Fan et al. 2018). top_p: only from the most likely words that together have this
        probability (nucleus sampling, Holtzman et al. 2020). seed: the same one gives the same texts. sentence_start,
        oov: see the class. Raises UserError for a word out of the vocabulary and for a setting out of its range.
        """
        sampling = Sampling(temperature, top_k, top_p)
        require_whole("count", count)
        require_whole("length", length)
        require_seed("seed", seed)
        ids = self.ids(text, oov)
        context = self.context(ids, sentence_start=sentence_start)
        sampled = generate(self.model, self.vocabulary, context, sampling, count=count, length=length, seed=seed)
        return [self.form.join([*ids.tolist(), *continuation]) for continuation in sampled]

    def ids(self, text: str, oov: str = "error") -> IntArray:
        """The ids of a text's words, int64 `[words]`. oov: see the class.

        Raises UserError for a word out of the vocabulary unless oov="unk", and for a text that is not one sentence.
        """
        require(oov in ("error", "unk"), "oov", oov, "error or unk")
        return self.form.encode(self.form.split(text), Oov(oov))

    def context(self, ids: IntArray, *, sentence_start: bool = True) -> IntArray:
        """The context int64 `[C]` after ids `[words]`: the last C of them, after `<s>` or `<unk>` where they are
        fewer.
        """
        size = self.context_size
        before = self.vocabulary.bos if sentence_start else self.vocabulary.unk
        return np.concatenate([np.full(size, before, dtype=np.int64), ids])[len(ids) :]


def likeliest(model: LanguageModel, contexts: IntArray, k: int, bos: int) -> tuple[IntArray, FloatArray]:
    """The k most likely words after contexts `[N, C]`, never `<s>`, and their log p, both `[N, k]`, most likely first.

    There are fewer than k columns where there are fewer words. bos: the id of `<s>`, the last one.
    """
    k = min(k, bos)
    if isinstance(model, Ranking):
        return model.top(contexts, k)
    log_p = model.log_dist(contexts)[:, :bos]
    words = np.argsort(-log_p, axis=1, kind="stable")[:, :k]
    return words, np.take_along_axis(log_p, words, axis=1)
