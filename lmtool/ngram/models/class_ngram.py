r"""Class-based n-grams: n-grams of classes of words, and each word by its share of its class.

.. math::

    p(w_t|h) = p(w_t\,|\,g(w_t))\;p(g(w_t)\,|\,g(w_{t-n+1}) \dots g(w_{t-1})) \qquad
    p(w|g(w)) = \frac{c(w)}{\sum_{v:\,g(v) = g(w)} c(v)}

g(w) is the class of w; a word that does not occur in train counts as half an occurrence. Words of a
class share its statistics: a few hundred classes have so few n-grams that long contexts are seen. Alone such a model is
worse than one of words; a mixture of both is better than either. The n-grams of classes are counted and smoothed like
those of words. The classes are read from a file or learned from the bigrams of train (see learned_classes): they
maximize the average mutual information of the classes of neighbors.

Source: Brown, Della Pietra, deSouza, Lai & Mercer (1992), "Class-based n-gram models of natural language",
    Computational Linguistics 18, eq. 2; exchange by Martin, Liermann & Ney (1998), Speech Communication 24.
Complexity: O(V C^2) to learn C classes of V words by merging, O(C) for each class among a word's neighbours in a pass
    of exchange; then as of `model=ngram`.
"""

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


class Start(Enum):
    """Initial classes of exchange."""

    merging = "merging"
    most_frequent = "most_frequent"


@dataclass(slots=True)
class ClassNgramConfig(CountModelConfig):
    """classes: number of classes to learn; start: initial classes; passes: maximum passes of exchange; tokens: number
    of tokens at the beginning of train to learn from, or null for all; file: classes to use instead, or null.
    """

    counts_words: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ("model.h5", "classes.txt")

    classes: int = setting(min=1, max=4096)
    start: Start = MISSING
    passes: int = setting(min=0)
    tokens: int | None = setting(min=2)
    file: str | None = MISSING

    def units(self, corpus: Corpus) -> Units:
        """Return classes as units, read or learned.

        Raises UserError for a file that cannot be read or does not fit, and if the text of train is not available.
        """
        from lmtool.ngram.models.class_model import Classes
        from lmtool.ngram.models.word_classes import learned_classes, read_classes

        if corpus.train_counted_externally:
            raise UserError(f"model={self.kind}: {corpus.path} has no text of train to read: choose other counts=")
        if self.file is not None:
            found, about = read_classes(Path(self.file), corpus.vocabulary, key="model.file")
        else:
            merging = self.start is Start.merging
            ids = corpus.text("train").ids[: self.tokens]
            found, about = learned_classes(ids, corpus.vocabulary, self.classes, self.passes, merging=merging)
        return Classes(corpus, found, about)

    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        """Load the model of a run folder. Raises UserError if a file is missing, damaged, or of another vocabulary."""
        from lmtool.ngram.models.class_model import ClassNgramModel

        return ClassNgramModel.load(folder, vocabulary)
