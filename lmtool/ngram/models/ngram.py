"""The n-gram model (Markov 1913; Shannon 1948; as a model of speech, Bahl, Jelinek & Mercer 1983).

    p(w_1 ... w_T) = prod over t of p(w_t | w_{t-n+1} ... w_{t-1})

A word depends on the n-1 words before it; n is the order. Each p(w|h) is estimated from the counts of n-grams by a
smoother (group `smoother`) and kept in back-off form (Katz 1987): see lmtool.ngram.table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.config.groups import CountModelConfig

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.units import CountModel, Units


@dataclass(slots=True)
class NgramModelConfig(CountModelConfig):
    """order: n, from 1 to 16."""

    def units(self, corpus: Corpus) -> Units:
        """The words."""
        from lmtool.ngram.units import Words

        return Words(corpus)

    def load(self, folder: Path, vocabulary: Vocabulary) -> CountModel:
        """The model of a run folder. Raises UserError where its file is missing, damaged, or of another vocabulary."""
        from lmtool.ngram.model import NGRAM_FILE, NgramModel

        return NgramModel.load(folder / NGRAM_FILE, vocabulary)
