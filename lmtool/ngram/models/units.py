"""What a count-based model counts the n-grams of, and what it makes of the table of these n-grams."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from lmtool.data.corpus import Corpus
from lmtool.language_model import LanguageModel
from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel
from lmtool.ngram.tables.backoff import BackoffTable


class Units(Protocol):
    """The units of a corpus that are counted.

    corpus: its text in these units, over their vocabulary. about: lines on how they were found, for the user.
    """

    corpus: Corpus
    about: list[str]

    def model(self, table: BackoffTable) -> LanguageModel:
        """The model over the words, of a table over the units."""

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write that model into a run folder. Raises UserError where it cannot be written."""


class Words:
    """The words themselves."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.about: list[str] = []

    def model(self, table: BackoffTable) -> LanguageModel:
        """The n-gram model."""
        return NgramModel(table, self.corpus.vocabulary)

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write the table."""
        table.save(folder / NGRAM_FILE, self.corpus.vocabulary.fingerprint())
