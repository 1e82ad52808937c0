"""The class-based n-gram model: n-grams of classes, and words within their class (Brown et al. 1992, eq. 2).

p(w|h) = p(w|c(w)) p(c(w) | the classes of the words of h)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt

from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import MappedCorpus
from lmtool.data.split import Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import LanguageModel
from lmtool.ngram.files.hdf5 import open_table, save_table
from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel
from lmtool.ngram.models.word_classes import WordClasses
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.system.arrays import FloatArray, IntArray, sentence_offsets

CLASSES_FILE = "classes.txt"  # in a run folder


class ClassNgramModel(LanguageModel):
    """A LanguageModel of words with contexts of n-1 words, of which it reads the classes.

    Legend: N contexts, C = n-1 words in each, V vocabulary entries, K candidates. Log-probabilities are natural,
    float64. A context is read from its last `<s>` on. In `log_dist`, the entry of `<s>`, which is never predicted, has
    the probability that the smoother keeps for classes outside those of the vocabulary, so that a row sums to one.
    Every method raises ValueError for contexts, words and offsets of another shape, type or range.
    """

    def __init__(self, table: BackoffTable, classes: WordClasses) -> None:
        """table: of n-grams of the classes."""
        self.classes = classes
        self.ngrams = NgramModel(table, classes.classes)

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return len(self.classes.class_of)

    @property
    def context_size(self) -> int:
        """C = n - 1."""
        return self.ngrams.context_size

    @property
    def normalised(self) -> bool:
        """Whether the model gives probabilities; stupid backoff gives scores, which do not sum to one."""
        return self.ngrams.normalised

    @classmethod
    def load(cls, folder: Path, vocabulary: Vocabulary) -> ClassNgramModel:
        """Load the model of a run folder. Raises UserError if a file is missing, damaged, or of another vocabulary."""
        classes = WordClasses.open(folder / CLASSES_FILE, vocabulary)
        return cls(open_table(folder / NGRAM_FILE, classes.classes.fingerprint()), classes)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p(candidate | context), `[N, K]`, not renormalized over the candidates `[N, K]`."""
        contexts = self._classes_of("log_prob_candidates", contexts)
        candidates = self._checked_words("log_prob_candidates: candidates", candidates, (len(contexts), "K"))
        of_classes = self.ngrams.log_prob_candidates(contexts, self.classes.class_of[candidates])
        return of_classes + self.classes.log_within[candidates]

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """Return log p of all words after contexts `[N, C]`, as `[N, V]`."""
        of_classes = self.ngrams.log_dist(self._classes_of("log_dist", contexts))
        dist: FloatArray = of_classes[:, self.classes.class_of]
        dist += self.classes.log_within
        return dist

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        """Return log p of each predicted token of a text, `[N]`."""
        return self.log_prob_text(text.ids, text.offsets, memory_limit)

    def log_prob_text(self, ids: npt.NDArray[Any], offsets: IntArray, memory_limit: int | None = None) -> FloatArray:
        """Return log p of the N tokens of running text, `[N]`; see NgramModel.log_prob_text."""
        ids = self._checked_words("log_prob_text: ids", ids, ("N",))
        offsets = sentence_offsets("ClassNgramModel.log_prob_text: offsets", offsets, len(ids))
        log_prob = self.ngrams.log_prob_text(self.classes.class_of[ids], offsets, memory_limit)
        log_prob += self.classes.log_within[ids]
        return log_prob

    def _classes_of(self, method: str, contexts: IntArray) -> IntArray:
        """Return the classes of the words of contexts."""
        words = self._checked_contexts(method, contexts)
        classes: IntArray = self.classes.class_of[words]
        return classes


class Classes:
    """Classes of words as units."""

    def __init__(self, corpus: Corpus, classes: WordClasses, about: list[str]) -> None:
        """about: lines for the user on how the classes were found."""
        self.corpus: Corpus = MappedCorpus(corpus, classes.class_of, classes.classes)
        self.about = about
        self._classes = classes
        self._words = corpus.vocabulary.words

    def model(self, table: BackoffTable) -> ClassNgramModel:
        """Return the class-based model."""
        return ClassNgramModel(table, self._classes)

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write the classes and the table. Raises UserError if they cannot be written."""
        self._classes.save(folder / CLASSES_FILE, self._words)
        save_table(table, folder / NGRAM_FILE, self._classes.classes.fingerprint())
