"""Ways to count n-grams: the options of the group `counts`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import CountsConfig, DataConfig
from lmtool.config.rules import MISSING, field_rules, require, setting, size_in_bytes

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.store import Store
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.files.count_files import CountFiles
    from lmtool.ngram.tables.storage import Storage

MAX_WEIGHT = 1000  # maximum weight of a file's counts: products with counts of maximum digits fit into 64 bits


@dataclass(slots=True)
class LimitedMemory(CountsConfig):
    """A way to count within a limit of memory. memory: limit of the process, such as 512MiB, or None."""

    memory: str | None = setting(check=size_in_bytes)

    def storage(self, corpus: Corpus) -> Storage:
        """Return storage in `memory`, or in three quarters of the free memory; temporary files lie beside the store."""
        from lmtool.ngram.tables.storage import Storage

        return Storage.within(self.memory, corpus)


@dataclass(slots=True)
class SortedCounts(LimitedMemory):
    r"""Counting by sorting: equal n-grams come together, and their number is their count.

    .. math::

        c(w_1 \dots w_k) = \sum_{t} [\,w_{t-k+1} \dots w_t = w_1 \dots w_k\,]

    In memory if it suffices, else in files, with the same result. The counts can be kept beside the store, where other
    smoothers and lower orders find them.

    Source: Heafield, Pouzyrevsky, Clark & Koehn (2013), "Scalable modified Kneser-Ney language model estimation", ACL.
    Complexity: O(n T) for T tokens and order n: one pass of a radix sort for each order, in files two; memory within
        `memory`, the rest on disk.
    """

    kind: str = "sorted"
    keep: bool = MISSING

    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        from lmtool.ngram.counting.counts import count_ngrams
        from lmtool.ngram.files.hdf5 import counts_path, open_counts, save_counts

        path = counts_path(corpus.path) if corpus.folder is not None else None  # None if the store is at an address
        cached = open_counts(path, corpus.fingerprint, order) if path is not None else None
        if cached is not None:
            return cached
        counts = count_ngrams(corpus.text("train"), corpus.vocabulary, order, storage=storage)
        if self.keep and path is not None:
            save_counts(path, counts, corpus.fingerprint)
        return counts


@dataclass(slots=True)
class TableCounts(LimitedMemory):
    r"""Counts from files: n-grams that this or another tool has counted, of texts that are not needed here.

    .. math::

        c(w_1 \dots w_k) = \sum_{f} \text{weight}_f\,c_f(w_1 \dots w_k)

    Counts are additive: the sums of the counts of an old and a new text are the counts of both.

    Source: SRILM's `ngram-merge` (Stolcke 2002, "SRILM - an extensible language modeling toolkit", ICSLP).
    Complexity: O(N) for N lines of all files: one radix sort for each order.
    """

    kind: str = "table"
    paths: Any = setting(said="a file of counts, a folder, or a list of them")
    weights: list[int] | None = MISSING

    def __post_init__(self) -> None:
        LimitedMemory.__post_init__(self)
        names = self.paths if isinstance(self.paths, list) else [self.paths]
        valid = bool(names) and all(isinstance(name, str | Path) and str(name) for name in names)
        require(valid, "counts.paths", self.paths, field_rules(type(self))["paths"].said)
        self.paths = [str(name) for name in names]
        if self.weights is not None:
            rule = f"a whole number from 1 to {MAX_WEIGHT:,} for each of the {len(names):,} of counts.paths"
            valid = len(self.weights) == len(names) and all(1 <= weight <= MAX_WEIGHT for weight in self.weights)
            require(valid, "counts.weights", self.weights, rule)

    def prepare(self, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Store | None:
        """Prepare a store with the vocabulary of the 1-grams, and without train."""
        from lmtool.data.choose_vocabulary import listed_words
        from lmtool.data.preprocess import preprocess
        from lmtool.data.text_files import file_identity, file_stamps
        from lmtool.data.text_rules import TextRules
        from lmtool.ngram.files.count_files import counted_train

        data.require_usual_tokens("files of counts are of text in sentences with <s>, </s> and <unk>")
        files, others = self._files(), data.others(progress=progress)
        paths = files.files()
        source = replace(
            others,
            stamp=others.stamp | {"counts": file_stamps(paths), "weights": files.weights},
            identity=lambda: (
                others.identity() | {"counts": [file_identity(path) for path in paths], "weights": files.weights}
            ),
            label=f"counted-{hashlib.sha256(json.dumps([self.paths, files.weights]).encode()).hexdigest()[:6]}",
            counted=lambda: counted_train(
                files, data.vocabulary, TextRules.of(data).word_rules, listed_words(others, data)
            ),
        )
        return preprocess(data, store_dir, progress=progress, source=source)

    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        from lmtool.config.settings import data_settings
        from lmtool.data.text_rules import TextRules
        from lmtool.ngram.files.count_files import read_counts

        rules = TextRules.of(data_settings(corpus.provenance)).word_rules
        return read_counts(self._files(), corpus.vocabulary, corpus.first_places, rules, order, storage)

    def _files(self) -> CountFiles:
        from lmtool.ngram.files.count_files import CountFiles

        return CountFiles(self.paths, list(self.weights or [1] * len(self.paths)))


@dataclass(slots=True)
class SparkCounts(LimitedMemory):
    r"""Counting on Spark: for text that does not fit on one machine.

    .. math::

        c(w_1 \dots w_k) = \sum_{p} \sum_{t \in p} [\,w_{t-k+1} \dots w_t = w_1 \dots w_k\,]

    The pieces p of the text are counted where they lie, and the counts of an n-gram added up on the worker that holds
    it. The model is the one that counting by sorting gives, to the bit.

    Source: Brants, Popat, Xu, Och & Dean (2007), "Large language models in machine translation", EMNLP, who counted two
        trillion words on such a system.
    Complexity: O(n T) for T tokens and order n, shared by the workers; the driver packs and estimates all n-grams.
    """

    kind: str = "spark"
    master: str = MISSING
    folder: str | None = MISSING
    partitions: int | None = setting(min=1)
    keep: bool = MISSING
    options: dict[str, Any] | None = MISSING

    def __post_init__(self) -> None:
        LimitedMemory.__post_init__(self)
        require(bool(self.master), "counts.master", repr(self.master), "a master's address, such as local[2]")

    def prepare(self, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Store | None:
        """Prepare a store without the ids of train, whose text stays in its place."""
        from lmtool.ngram.spark.run import prepare

        return prepare(self, data, store_dir, progress=progress)

    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        from lmtool.ngram.spark.run import count

        return count(self, corpus, order, storage)
