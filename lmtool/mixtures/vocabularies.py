"""Models over a common vocabulary, so that models of different vocabularies can be mixed and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lmtool.config.verbs import UNION
from lmtool.data.split import Split
from lmtool.data.vocabulary import BOS, EOS, UNK, SpecialTokens, Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray, IntArray


def union_vocabulary(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Return the words of several vocabularies, by first appearance, `</s>` and `<s>` last, with the sums of counts."""
    counts: dict[str, int] = {}
    for vocabulary in vocabularies:
        for word, count in zip(vocabulary.words, vocabulary.counts.tolist(), strict=True):
            counts[word] = counts.get(word, 0) + count
    ends = [EOS] if EOS in counts else []
    words = [word for word in counts if word not in (BOS, EOS)] + ends + [BOS]
    numbers = np.array([counts[word] for word in words], dtype=np.int64)
    return Vocabulary(
        tuple(words), numbers, len(words) - 2 if ends else None, words.index(UNK if UNK in counts else BOS)
    )


def common_vocabulary(vocabularies: Mapping[str, Vocabulary], union: bool) -> Vocabulary:
    """Return the vocabulary of several models, by name: the first model's, or the union of the words of all."""
    (first, expected), *others = vocabularies.items()
    for name, vocabulary in others:
        if (vocabulary.eos is None, vocabulary.sentences) != (expected.eos is None, expected.sentences):
            why = f"only one of them has {EOS}, or sentences: mix models of sentences, or of streams"
            raise UserError(f"{first} and {name}: {why}")
        if not union and vocabulary.ids.keys() != expected.ids.keys():
            word = min(vocabulary.ids.keys() ^ expected.ids.keys())
            raise UserError(
                f"{first} and {name} have different words (only one has {word!r}): set text=FILE vocabulary={UNION} to "
                "mix them over all words, or train them with the same data.vocabulary.file= or limit_vocabulary="
            )
    return union_vocabulary(list(vocabularies.values())) if union else expected


def union_note(vocabularies: Mapping[str, Vocabulary], union: Vocabulary) -> list[str]:
    """Return the note on models that lack words of a union, given their vocabularies; empty if none does."""
    lacks = {name: len(union) - len(own) for name, own in vocabularies.items()}
    named = ", ".join(f"{name} lacks {count:,}" for name, count in lacks.items() if count)
    shared = "the p(<unk>) of a model is shared equally by <unk> and the words it lacks"
    return [f"of the {len(union) - 1:,} words of all models, {named}: {shared}"] if named else []


def shares_of_unk(own: Vocabulary, vocabulary: Vocabulary) -> tuple[IntArray, FloatArray]:
    """Return the id in a model's own vocabulary of each word of another one, `[V]`, and the log of the word's share of
    p(id): 1 / K for the K words that are `<unk>` to the model, `<unk>` itself among them, and 1 for all others.
    """
    if not vocabulary.ids.keys() >= own.ids.keys():
        raise ValueError("the vocabulary of the mixture lacks words of a member")
    ids = own.encode(vocabulary.words)
    unknown = ids == own.unk
    return ids, np.where(unknown, -np.log(unknown.sum()), 0.0)


class OverVocabulary(LanguageModel):
    """A model over a larger vocabulary, which has all of the model's words: p(w|h) = p(<unk>|h) / K for each of the K
    words that are `<unk>` to the model, `<unk>` itself among them. Each distribution sums to one if the model's do.
    """

    vocabulary_size: int = 0
    context_size: int | None = None
    context_classes: int | None = None
    hidden_dim: int | None = None
    across_sentences = normalized = dynamic = False

    def __init__(self, model: LanguageModel, own: Vocabulary, vocabulary: Vocabulary) -> None:
        """own: the vocabulary of the model itself."""
        self.model, self._tokens = model, own.special_tokens
        self._ids, self._log_share = shares_of_unk(own, vocabulary)
        self._read: tuple[Split, Split] | None = None
        self.vocabulary_size, self.context_size = len(vocabulary), model.context_size
        self.across_sentences, self.normalized, self.dynamic = model.across_sentences, model.normalized, model.dynamic
        self.context_classes, self.hidden_dim = model.context_classes, model.hidden_dim

    def log_dist(self, contexts: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_dist", contexts)
        return self.model.log_dist(self._ids[contexts])[:, self._ids] + self._log_share

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_prob_candidates", contexts)
        candidates = self._checked_words("log_prob_candidates: candidates", candidates, (len(contexts), "K"))
        log_prob = self.model.log_prob_candidates(self._ids[contexts], self._ids[candidates])
        return log_prob + self._log_share[candidates]

    def context_lengths(self, contexts: IntArray) -> IntArray:
        return self.model.context_lengths(self._ids[self._checked_contexts("context_lengths", contexts)])

    def matched_lengths(self, contexts: IntArray, targets: IntArray) -> IntArray:
        targets = self._checked_words("matched_lengths: targets", targets, (len(contexts),))
        return self.model.matched_lengths(self._ids[contexts], self._ids[targets])

    def hidden(self, contexts: IntArray) -> npt.NDArray[np.float32]:
        return self.model.hidden(self._ids[self._checked_contexts("hidden", contexts)])

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        log_prob = self.model.score_text(self._own(text), progress=progress, memory_limit=memory_limit)
        return log_prob + self._log_share[text.ids]

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        return self.model.log_dist_text(self._own(text), first, last)[:, self._ids] + self._log_share

    def hidden_text(self, text: Split, first: int, last: int) -> npt.NDArray[np.float32]:
        return self.model.hidden_text(self._own(text), first, last)

    def _own(self, text: Split) -> Split:
        """Return a text in the model's ids: the same object for the same text, which a model may continue reading."""
        if self._read is None or self._read[0] is not text:
            ids = self._ids[text.ids].astype(text.ids.dtype)
            self._read = text, replace(text, ids=ids, bos=self._tokens.bos)
        return self._read[1]

    @property
    def state_size(self) -> int:
        return self.model.state_size

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> IntArray:
        return self.model.begin(self._tokens, sentence_start=sentence_start)

    def advance(self, states: IntArray, words: IntArray, special_tokens: SpecialTokens) -> tuple[FloatArray, IntArray]:
        words = self._checked_words("advance: words", words, (len(states),))
        log_prob, after = self.model.advance(states, self._ids[words], self._tokens)
        return log_prob + self._log_share[words], after


def map_vocabulary(model: LanguageModel, own: Vocabulary, vocabulary: Vocabulary, *, union: bool) -> LanguageModel:
    """Return a model over a vocabulary that has the model's words in any order or, with `union`, additional words."""
    if not union and len(own) != len(vocabulary):
        raise ValueError("a member has other words than the mixture")
    return model if own.words == vocabulary.words else OverVocabulary(model, own, vocabulary)
