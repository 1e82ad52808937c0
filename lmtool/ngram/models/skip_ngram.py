r"""Skipping n-grams: n-grams whose context is every s-th word.

.. math::

    p(w_t|h) = p(w_t\,|\,w_{t-s(n-1)} \dots w_{t-2s}\,w_{t-s})

With s = 2 the newest word of the context is the last but one, which is still informative if the last word was never
seen there. Such a model is to be mixed with n-grams of all words. Of the contexts in Goodman (2001) these are the ones
that are n-grams of a text, the text of every s-th word, so that they are counted and smoothed like any others.

Source: Goodman (2001), "A bit of progress in language modeling", Computer Speech & Language 15, section 4; Rosenfeld
    (1994), "Adaptive statistical language modeling".
Complexity: as of `model=ngram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lmtool.config.groups import CountModelConfig
from lmtool.config.rules import setting
from lmtool.errors import UserError

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.language_model import LanguageModel
    from lmtool.ngram.models.ngram_model import Units


@dataclass(slots=True)
class SkipNgramConfig(CountModelConfig):
    """step: s."""

    counts_words: ClassVar[bool] = False

    step: int = setting(min=1, max=16)

    def units(self, corpus: Corpus) -> Units:
        """Return every s-th word as units. Raises UserError if the text of train is not available."""
        from lmtool.ngram.models.skip_model import EveryWord

        if corpus.train_counted_externally:
            raise UserError(f"model={self.kind}: {corpus.path} has no text of train to read: choose other counts=")
        return EveryWord(corpus, self.step)

    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        """Load the model of a run. Raises UserError if its file is missing, damaged, or of another vocabulary."""
        from lmtool.ngram.files.hdf5 import open_table
        from lmtool.ngram.models.ngram_model import NGRAM_FILE
        from lmtool.ngram.models.skip_model import SkipNgramModel

        table = open_table(folder / NGRAM_FILE, vocabulary.fingerprint())
        return SkipNgramModel(table, vocabulary, self.step)
