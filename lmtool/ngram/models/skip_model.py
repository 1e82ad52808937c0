"""N-grams with contexts of every s-th word (Goodman 2001, section 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import SkipCorpus, every
from lmtool.data.split import Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import LanguageModel
from lmtool.ngram.files.hdf5 import save_table
from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.system.arrays import FloatArray, IntArray, sentence_offsets


class SkipNgramModel(LanguageModel):
    """A LanguageModel with contexts of s (n-1) words, of which it reads every s-th; the newest is s words back.

    Legend: N contexts, C = s (n-1) words in each, V vocabulary entries, K candidates. For all else see NgramModel.
    """

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary, step: int) -> None:
        """table: of n-grams of every s-th word. vocabulary: of its words. step: s."""
        self.ngrams = NgramModel(table, vocabulary)
        self.step = step

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.ngrams.vocabulary_size

    @property
    def context_size(self) -> int:
        """C = s (n - 1)."""
        return self.step * self.ngrams.context_size

    @property
    def normalised(self) -> bool:
        """Whether the model gives probabilities; stupid backoff gives scores, which do not sum to one."""
        return self.ngrams.normalised

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p(candidate | context), `[N, K]`, not renormalized over the candidates `[N, K]`."""
        return self.ngrams.log_prob_candidates(self._read("log_prob_candidates", contexts), candidates)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """Return log p of all words after contexts `[N, C]`, as `[N, V]`."""
        return self.ngrams.log_dist(self._read("log_dist", contexts))

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        """Return log p of each predicted token of a text, `[N]`."""
        return self.log_prob_text(text.ids, text.offsets, memory_limit)

    def log_prob_text(self, ids: npt.NDArray[Any], offsets: IntArray, memory_limit: int | None = None) -> FloatArray:
        """Return log p of the N tokens of running text, `[N]`; see NgramModel.log_prob_text."""
        ids = self._checked_words("log_prob_text: ids", ids, ("N",))
        offsets = sentence_offsets("SkipNgramModel.log_prob_text: offsets", offsets, len(ids))
        places, begins = every(self.step, offsets)
        log_prob = np.empty(len(ids), dtype=np.float64)
        log_prob[places] = self.ngrams.log_prob_text(ids[places], begins, memory_limit)
        return log_prob

    def _read(self, method: str, contexts: IntArray) -> IntArray:
        """Return the words of contexts that are read, `[N, n-1]`."""
        return self._checked_contexts(method, contexts)[:, :: self.step]


class EveryWord:
    """Every s-th word as units."""

    def __init__(self, corpus: Corpus, step: int) -> None:
        """step: s."""
        self.corpus: Corpus = SkipCorpus(corpus, step)
        self.about: list[str] = []
        self._step = step

    def model(self, table: BackoffTable) -> SkipNgramModel:
        """Return the model that skips."""
        return SkipNgramModel(table, self.corpus.vocabulary, self._step)

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write the table. Raises UserError if it cannot be written."""
        save_table(table, folder / NGRAM_FILE, self.corpus.vocabulary.fingerprint())
