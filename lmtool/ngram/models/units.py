"""What a count-based model counts the n-grams of, and what it makes of the table of these n-grams."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from lmtool.data.corpus import Corpus
from lmtool.language_model import LanguageModel
from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.system.arrays import FloatArray, IntArray


class CountModel(LanguageModel, Protocol):
    """A language model that scores running text by a back-off table."""

    def log_prob_text(self, ids: npt.NDArray[Any], offsets: IntArray) -> FloatArray:
        """log p of each predicted token, `[N]`, of ids `[N]` whose sentences begin at offsets `[S + 1]`, N the last."""

    def log_prob_within(self, ids: npt.NDArray[Any], offsets: IntArray, memory: int) -> FloatArray:
        """The same, where the process may have `memory` bytes."""


class Units(Protocol):
    """The units of a corpus that are counted.

    corpus: its text in these units, over their vocabulary. about: lines on how they were found, for the user.
    """

    corpus: Corpus
    about: list[str]

    def model(self, table: BackoffTable) -> CountModel:
        """The model over the words, of a table over the units."""

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write that model into a run folder. Raises UserError where it cannot be written."""


class Words:
    """The words themselves."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.about: list[str] = []

    def model(self, table: BackoffTable) -> CountModel:
        """The n-gram model."""
        return NgramModel(table, self.corpus.vocabulary)

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write the table."""
        table.save(folder / NGRAM_FILE, self.corpus.vocabulary.fingerprint())
