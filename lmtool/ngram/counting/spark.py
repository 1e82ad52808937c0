r"""Counting on Spark: for text that one machine does not hold.

.. math::

    c(w_1 \dots w_k) = \sum_{p} \sum_{t \in p} [\,w_{t-k+1} \dots w_t = w_1 \dots w_k\,]

The pieces p of the text are counted where they lie, and the counts of an n-gram added up on the worker that holds it.
The model is the one that counting by sorting gives, to the bit.

Source: Brants, Popat, Xu, Och & Dean (2007), "Large language models in machine translation", EMNLP, who counted two
    trillion words on such a system.
Complexity: O(n T) for T tokens and order n, shared by the workers; the driver holds the n-grams of the model alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import DataConfig
from lmtool.config.rules import MISSING, require, require_whole
from lmtool.ngram.counting.base import CountsInMemory

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import Prepared
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.smoothers.base import Smoother
    from lmtool.ngram.spark.cluster import Cluster
    from lmtool.ngram.tables.backoff import BackoffTable
    from lmtool.ngram.tables.storage import Storage


@dataclass(slots=True)
class SparkCounts(CountsInMemory):
    """master: of the cluster; folder: where Spark's results lie, seen by the driver and the workers, or null;
    partitions: of the n-grams, or null; keep: whether to keep what lies in the folder; memory is that of the driver;
    options: Spark's own settings, or null.
    """

    master: str = MISSING
    folder: str | None = MISSING
    partitions: int | None = MISSING
    keep: bool = MISSING
    options: dict[str, Any] | None = MISSING

    def __post_init__(self) -> None:
        CountsInMemory.__post_init__(self)
        require_whole("counts.partitions", self.partitions, null=True)
        require(bool(self.master), "counts.master", repr(self.master), "a master's address, such as local[2]")

    def prepare(self, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Prepared | None:
        """The store without the ids of train, which stay where they are."""
        from lmtool.ngram.spark.run import prepare

        return prepare(self._cluster(), data, store_dir, progress=progress)

    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        """The counts of the train split, made by Spark and put together here.

        Raises UserError where the cluster cannot be reached or its work fails; what it has finished is used next time.
        """
        from lmtool.ngram.spark.run import count

        return count(self._cluster(), corpus, order, storage)

    def estimate(
        self,
        corpus: Corpus,
        order: int,
        smoother: Smoother,
        cutoffs: list[int] | None,
        threshold: float | None,
        storage: Storage,
    ) -> BackoffTable | None:
        """The model, estimated and pruned by Spark, so that no more than its n-grams come to the driver."""
        from lmtool.ngram.spark.run import estimate

        return estimate(self._cluster(), corpus, order, smoother, cutoffs, threshold, storage)

    def _cluster(self) -> Cluster:
        from lmtool.ngram.spark.cluster import Cluster

        return Cluster(self.master, self.folder, self.partitions, self.keep, dict(_flat("", self.options or {})))


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Spark's settings by their names with dots, also those that were given as nested mappings."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(f"{name}.{key}" if name else key, inner)]
    return [(name, str(value).lower() if isinstance(value, bool) else str(value))]
