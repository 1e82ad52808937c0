"""The steps in order: from the settings to a store, its counts and its model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lmtool.config.groups import DataConfig, EstimationRequest
from lmtool.config.settings import data_settings
from lmtool.data.choose_vocabulary import listed_words
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess, settings_json
from lmtool.data.remote import is_address
from lmtool.data.store import Prepared
from lmtool.ngram.counting.counts import Counts, unigram_counts
from lmtool.ngram.spark import _tasks
from lmtool.ngram.spark._assemble import assemble_counts
from lmtool.ngram.spark._estimate import estimate_on_spark, require_all
from lmtool.ngram.spark._text import Place, count_train, find_train
from lmtool.ngram.spark.cluster import LOCAL, Cluster, Stages, Work, refusals, run_tasks, start, whole_files
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import IntArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 2  # version of the folder of finished steps
TOKENS_PER_PARTITION = 2_000_000


def prepare(cluster: Cluster, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Prepared:
    """Prepare the store of vocabulary, valid and test; train is counted. Raises UserError if a step fails."""
    text, others = data.elsewhere(), data.others(progress=progress)
    spark = start(cluster, progress=progress)
    place = find_train(data, text, spark)
    stages = stages_of(cluster, data, place, store_dir)
    train = {"train": place.files}
    source = replace(
        others,
        stamp=others.stamp | train,
        identity=lambda: others.identity() | train,
        label="counted",
        counted=lambda: count_train(data, place, spark, stages, listed_words(others, data.vocabulary)),
    )
    return preprocess(data, store_dir, progress=progress, source=source)


def stages_of(cluster: Cluster, data: DataConfig, place: Place, store_dir: str | Path) -> Stages:
    """Return the folder of the steps that Spark finishes for this text and these settings."""
    identity = json.dumps([FORMAT, settings_json(data), place.files])
    name = f"spark-{data.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"
    root = cluster.folder.rstrip("/") if cluster.folder is not None else str(store_dir)
    return Stages(f"{root if is_address(root) else f'{LOCAL}{Path(root).resolve()}'}/{name}")


def count(cluster: Cluster, corpus: Corpus, order: int, storage: Storage) -> Counts:
    """Return the counts of orders 1 to `order` of the train split of a store that `prepare` made."""
    if order == 1:
        return unigram_counts(corpus.vocabulary)
    with _work(cluster, corpus, order) as work:
        sizes = _sorted_orders(work, corpus, order)
        batches = work.stages.batches(f"sorted-{order}")
        made = assemble_counts(batches, sizes, unigram_counts(corpus.vocabulary), corpus.first_places, order, storage)
        pairs = made.count[1]
        require_all(sum(int(pairs.get(*piece).sum()) for piece in storage.pieces(pairs.length)), corpus)
    return made


def estimate(cluster: Cluster, request: EstimationRequest) -> BackoffTable | None:
    """Return the model, estimated on the cluster; None for order 1, for which the vocabulary's counts suffice."""
    if request.order == 1:
        return None
    with _work(cluster, request.corpus, request.order) as work:
        return estimate_on_spark(work, request)


@contextmanager
def _work(cluster: Cluster, corpus: Corpus, order: int) -> Iterator[Work]:
    """Provide the counted n-grams of the highest order; finished steps are removed at the end, unless they are kept."""
    spark = start(cluster, progress=False)
    data = data_settings(corpus.provenance)
    place = find_train(data, data.elsewhere(), spark)
    stages = stages_of(cluster, data, place, corpus.path.parent)
    remedy = f"run again: finished steps are kept in {stages.address}; more counts.partitions need less memory"
    with refusals(f"counting n-grams of order {order} ({remedy})"):
        tokens = corpus.tokens("train")
        partitions = cluster.partitions or max(-(-tokens // TOKENS_PER_PARTITION), _parallelism(cluster, spark))
        frequent = frequent_words(corpus, partitions)
        vocabulary = replace(corpus.vocabulary)  # without its index, which each worker builds

        def make() -> DataFrame:
            task = _tasks.count_in_pieces(data, vocabulary, order, frequent)
            rows = run_tasks(place.lines(spark), task, _tasks.ngram_schema(order))
            return rows.repartition(partitions, "key").drop("key")

        yield Work(spark, stages, stages.finished(f"ngrams-{order}-{partitions}", make), partitions, frequent)
    if not cluster.keep:
        stages.remove()


def frequent_words(corpus: Corpus, partitions: int) -> IntArray:
    """Return the words after which the n-grams would fill more than a quarter of a partition, int64 `[F]`."""
    share = corpus.vocabulary.counts / corpus.tokens("train")
    return np.flatnonzero(share > 0.25 / partitions) if partitions > 1 else np.empty(0, dtype=np.int64)


def _parallelism(cluster: Cluster, spark: SparkSession) -> int:
    """Return the number of cores of the cluster, or 2 with Spark Connect, which does not report it."""
    return 2 if cluster.master.startswith("sc://") else int(spark.sparkContext.defaultParallelism)


def _sorted_orders(work: Work, corpus: Corpus, order: int) -> dict[int, int]:
    """Make the folder of the sorted n-grams of all orders; return the number of rows of each order."""
    spark, stages = work.spark, work.stages

    def orders() -> DataFrame:
        task = _tasks.count_orders(order, corpus.vocabulary.bos)
        return run_tasks(whole_files(spark, work.ngrams), task, _tasks.order_schema(order))

    def in_order() -> DataFrame:
        return work.in_order(spark.read.parquet(stages.finished(f"orders-{order}", orders)), order)

    rows = spark.read.parquet(stages.finished(f"sorted-{order}", in_order))
    return {row["k"]: row["count"] for row in rows.groupBy("k").count().collect()}
