"""Settings of the count-based models of the group `model`; what they build is imported when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lmtool.config.groups import CountModelConfig
from lmtool.config.rules import MISSING, setting
from lmtool.errors import UserError

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.language_model import LanguageModel
    from lmtool.ngram.models.ngram_model import Units


@dataclass(slots=True)
class NgramModelConfig(CountModelConfig):
    r"""The n-gram model: a word depends on the n-1 words before it.

    .. math::

        p(w_1 \dots w_T) = \prod_{t=1}^{T} p(w_t\,|\,w_{t-n+1} \dots w_{t-1})

    n is the order. Each p(w|h) is estimated from the counts of n-grams by a smoother (group `smoother`) and kept in
    back-off form: the probability of each n-gram that is in the model, and a weight b of each context,

    .. math::

        p(w|h) = \begin{cases} p_{hw} & \text{if } hw \text{ is in the model} \\ b_h\,p(w|h') & \text{otherwise}
        \end{cases}

    Source: Shannon (1948), "A mathematical theory of communication", after Markov (1913); as a model of speech Bahl,
        Jelinek & Mercer (1983), IEEE PAMI 5; the back-off form Katz (1987), eq. 2.
    Complexity: O(n T) to count T tokens, by radix sorts; p(w|h) in running text by n searches among the words that
        follow a context, O(log V) each; about ten bytes for each n-gram, in memory and on disk.
    """

    kind: str = "ngram"

    def units(self, corpus: Corpus) -> Units:
        from lmtool.ngram.models.ngram_model import Units

        return Units(corpus)

    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel

        return NgramModel.load(folder / NGRAM_FILE, vocabulary)


@dataclass(slots=True)
class SkipNgramConfig(CountModelConfig):
    r"""Skipping n-grams: n-grams whose context is every s-th word.

    .. math::

        p(w_t|h) = p(w_t\,|\,w_{t-s(n-1)} \dots w_{t-2s}\,w_{t-s})

    s is `step`. With s = 2 the newest word of the context is the last but one, which is still informative if the last
    word was never seen there. Such a model is to be mixed with n-grams of all words. Of the contexts in Goodman (2001)
    these are the ones that are n-grams of a text, the text of every s-th word, so that they are counted and smoothed
    like any others.

    Source: Goodman (2001), "A bit of progress in language modeling", Computer Speech & Language 15, section 4;
        Rosenfeld (1994), "Adaptive statistical language modeling".
    Complexity: as of `model=ngram`.
    """

    kind: str = "skip_ngram"
    counts_words: ClassVar[bool] = False

    step: int = setting(min=1, max=16)

    def units(self, corpus: Corpus) -> Units:
        from lmtool.data.derived_corpus import SkipCorpus
        from lmtool.ngram.models.ngram_model import Units

        _require_text(self.kind, corpus)
        return Units(SkipCorpus(corpus, self.step), step=self.step)

    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        from lmtool.ngram.models.ngram_model import UnitNgramModel

        return UnitNgramModel.load(folder, vocabulary, step=self.step)


class Start(Enum):
    """Initial classes of exchange."""

    merging = "merging"
    most_frequent = "most_frequent"


@dataclass(slots=True)
class ClassNgramConfig(CountModelConfig):
    r"""Class-based n-grams: n-grams of classes of words, and each word by its share of its class.

    .. math::

        p(w_t|h) = p(w_t\,|\,g(w_t))\;p(g(w_t)\,|\,g(w_{t-n+1}) \dots g(w_{t-1})) \qquad
        p(w|g(w)) = \frac{c(w)}{\sum_{v:\,g(v) = g(w)} c(v)}

    g(w) is the class of w; a word that does not occur in train counts as half an occurrence. Words of a class share its
    statistics: a few hundred classes have so few n-grams that long contexts are seen. Alone such a model is worse than
    one of words; a mixture of both is better than either. The n-grams of classes are counted and smoothed like those of
    words. The classes are read from `file`, or learned from the bigrams of the first `tokens` of train (null: of all;
    see learned_classes): they maximize the average mutual information of the classes of neighbors.

    Source: Brown, Della Pietra, deSouza, Lai & Mercer (1992), "Class-based n-gram models of natural language",
        Computational Linguistics 18, eq. 2; exchange by Martin, Liermann & Ney (1998), Speech Communication 24.
    Complexity: O(V C^2) to learn C classes of V words by merging, O(C) for each class among a word's neighbors in each
        of at most `passes` passes of exchange; then as of `model=ngram`.
    """

    kind: str = "class_ngram"
    counts_words: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ("model.h5", "classes.txt")

    classes: int = setting(min=1, max=4096)
    start: Start = MISSING
    passes: int = setting(min=0)
    tokens: int | None = setting(min=2)
    file: str | None = MISSING

    def units(self, corpus: Corpus) -> Units:
        from lmtool.data.derived_corpus import MappedCorpus
        from lmtool.ngram.models.ngram_model import Units
        from lmtool.ngram.models.word_classes import learned_classes, read_classes

        _require_text(self.kind, corpus)
        if self.file is not None:
            found, about = read_classes(Path(self.file), corpus.vocabulary, key="model.file")
        else:
            merging = self.start is Start.merging
            text, vocabulary = corpus.text("train"), corpus.vocabulary
            ids, offsets = text.ids[: self.tokens], text.offsets[:]
            found, about = learned_classes(ids, offsets, vocabulary, self.classes, self.passes, merging=merging)
        return Units(MappedCorpus(corpus, found.class_of, found.classes), classes=found, about=about)

    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        from lmtool.ngram.models.ngram_model import CLASSES_FILE, UnitNgramModel
        from lmtool.ngram.models.word_classes import WordClasses

        return UnitNgramModel.load(folder, vocabulary, classes=WordClasses.open(folder / CLASSES_FILE, vocabulary))


def _require_text(kind: str, corpus: Corpus) -> None:
    """Raise UserError if the text of train is not available."""
    if corpus.train_counted_externally:
        raise UserError(f"model={kind}: {corpus.path} has no text of train to read: choose other counts=")
