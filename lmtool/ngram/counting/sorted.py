r"""Counting by sorting: equal n-grams come together, and their number is their count.

.. math::

    c(w_1 \dots w_k) = \sum_{t} [\,w_{t-k+1} \dots w_t = w_1 \dots w_k\,]

In memory where that suffices; else in sorted runs on disk that are merged, with the same result. The counts can be
kept beside the store, where other smoothers and lower orders find them.

Source: Heafield, Pouzyrevsky, Clark & Koehn (2013), "Scalable modified Kneser-Ney language model estimation", ACL.
Complexity: O(n T) for T tokens and order n: one radix sort for each order, of keys of at most 64 bits; memory within
    `memory`, the rest on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.rules import MISSING
from lmtool.ngram.counting.base import CountsInMemory

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.tables.storage import Storage


@dataclass(slots=True)
class SortedCounts(CountsInMemory):
    """keep: whether to keep the counts beside the store."""

    keep: bool = MISSING

    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        """The counts of the train split: those kept beside the store, or counted now.

        Raises UserError for a text that cannot be counted and where the disk is full.
        """
        from lmtool.ngram.counting.cache import counts_path, open_counts, save_counts
        from lmtool.ngram.counting.counts import count_ngrams

        path = counts_path(corpus.path) if corpus.folder is not None else None  # beside it, where that is a folder
        cached = open_counts(path, corpus.fingerprint, order) if path is not None else None
        if cached is not None:
            return cached
        counts = count_ngrams(corpus.text("train"), corpus.vocabulary, order, storage=storage)
        if self.keep and path is not None:
            save_counts(path, counts, corpus.fingerprint)
        return counts
