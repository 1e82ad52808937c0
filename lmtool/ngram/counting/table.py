r"""Counts from files: n-grams that were counted before, by this or another tool, of texts that need not be here.

.. math::

    c(w_1 \dots w_k) = \sum_{f} \text{weight}_f\,c_f(w_1 \dots w_k)

Counts add up: those of an old text and those of a new one are those of both.

Source: SRILM's `ngram-merge` (Stolcke 2002, "SRILM - an extensible language modeling toolkit", ICSLP).
Complexity: O(N) for N lines of all files: one radix sort for each order.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import DataConfig
from lmtool.config.rules import MISSING, require
from lmtool.errors import UserError
from lmtool.ngram.counting.base import CountsInMemory

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import Prepared
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.files.counts_read import CountFiles
    from lmtool.ngram.tables.storage import Storage


LARGEST = 1000  # weight: with the digits that a count may have, products fit 64 bits


@dataclass(slots=True)
class TableCounts(CountsInMemory):
    """path: of a file or folder, or a list of them; weights: how often the counts of each count, whole numbers, or null
    for once.
    """

    path: Any = MISSING
    weights: list[int] | None = MISSING

    def __post_init__(self) -> None:
        CountsInMemory.__post_init__(self)
        names = self.path if isinstance(self.path, list) else [self.path]
        right = bool(names) and all(isinstance(name, str | Path) and str(name) for name in names)
        require(right, "counts.path", self.path, "a file of counts, a folder, or a list of them")
        self.path = [str(name) for name in names]
        if self.weights is not None:
            rule = f"a whole number from 1 to {LARGEST:,} for each of the {len(names):,} of counts.path"
            fits = len(self.weights) == len(names) and all(1 <= weight <= LARGEST for weight in self.weights)
            require(fits, "counts.weights", self.weights, rule)

    def prepare(self, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Prepared | None:
        """The store with the vocabulary of the 1-grams, and without train."""
        from dataclasses import replace

        from lmtool.data.choose_vocabulary import listed_words
        from lmtool.data.preprocess import preprocess
        from lmtool.data.text_files import file_identity, file_stamps
        from lmtool.ngram.files.counts_read import counted_train

        if not data.sentences:
            raise UserError("data.sentences=false: files of counts are of text in sentences")
        files, others = self._files(), data.others(progress=progress)
        paths = files.files()
        source = replace(
            others,
            stamp=others.stamp | {"counts": file_stamps(paths), "weights": files.weights},
            identity=lambda: (
                others.identity() | {"counts": [file_identity(path) for path in paths], "weights": files.weights}
            ),
            label=f"counted-{hashlib.sha256(json.dumps([self.path, files.weights]).encode()).hexdigest()[:6]}",
            counted=lambda: counted_train(files, data.vocabulary, listed_words(others, data.vocabulary)),
        )
        return preprocess(data, store_dir, progress=progress, source=source)

    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        """The counts in the files, added up.

        Raises UserError, naming file and line, for what are no n-grams with counts.
        """
        from lmtool.ngram.files.counts_read import read_counts

        return read_counts(self._files(), corpus, order, storage)

    def _files(self) -> CountFiles:
        from lmtool.ngram.files.counts_read import CountFiles

        return CountFiles(self.path, list(self.weights or [1] * len(self.path)))
