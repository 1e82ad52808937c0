"""The steps in their order: from the settings to a store and its counts."""

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
from lmtool.data.choose_vocabulary import listed_words
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import Prepared, preprocess, settings_json
from lmtool.data.remote import is_address
from lmtool.ngram.counting.counts import Counts, unigram_counts
from lmtool.ngram.spark import tasks
from lmtool.ngram.spark.assemble import assemble_counts
from lmtool.ngram.spark.cluster import Cluster, Work, refusals, run_tasks, start, whole_files
from lmtool.ngram.spark.estimate import estimate_on_spark, require_all
from lmtool.ngram.spark.stages import LOCAL, Stages
from lmtool.ngram.spark.text import Place, count_train, find_train
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import IntArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1  # of the folder
TOKENS_PER_PARTITION = 2_000_000
PIECE = 1 << 20  # 2-grams added up at once


def prepare(cluster: Cluster, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Prepared:
    """The store: vocabulary, valid and test; train is counted where it lies. Raises UserError as Spark's steps do."""
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
    """The folder of what Spark finishes for this text and these settings."""
    identity = json.dumps([FORMAT, settings_json(data), place.files])
    name = f"spark-{data.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"
    root = cluster.folder.rstrip("/") if cluster.folder is not None else str(store_dir)
    return Stages(f"{root if is_address(root) else f'{LOCAL}{Path(root).resolve()}'}/{name}")


def count(cluster: Cluster, corpus: Corpus, order: int, storage: Storage) -> Counts:
    """The counts of orders 1 to `order` of the train split of a store that `prepare` made."""
    if order == 1:
        return unigram_counts(corpus.vocabulary)
    with _work(cluster, corpus, order) as work:
        sizes = _sorted_orders(work, corpus, order)
        batches = work.stages.batches(f"sorted-{order}")
        made = assemble_counts(batches, sizes, unigram_counts(corpus.vocabulary), corpus.first_places, order, storage)
        pairs = made.count[1]
        steps = range(0, pairs.length, PIECE)
        require_all(sum(int(pairs.get(at, min(at + PIECE, pairs.length)).sum()) for at in steps), corpus)
    return made


def estimate(cluster: Cluster, request: EstimationRequest) -> BackoffTable | None:
    """Return the model, estimated on the cluster; None for order 1, for which the vocabulary's counts suffice."""
    if request.order == 1:
        return None
    with _work(cluster, request.corpus, request.order) as work:
        return estimate_on_spark(work, request)


@contextmanager
def _work(cluster: Cluster, corpus: Corpus, order: int) -> Iterator[Work]:
    """The n-grams of the highest order, counted; what is finished is removed at the end, unless it is to be kept."""
    spark = start(cluster, progress=False)
    data = corpus.settings
    place = find_train(data, data.elsewhere(), spark)
    stages = stages_of(cluster, data, place, corpus.path.parent)
    remedy = f"run again: what is finished is kept in {stages.address}; more counts.partitions need less memory"
    with refusals(f"counting n-grams of order {order} ({remedy})"):
        tokens = corpus.tokens("train")
        partitions = cluster.partitions or max(-(-tokens // TOKENS_PER_PARTITION), _parallelism(cluster, spark))
        frequent = frequent_words(corpus, partitions)
        vocabulary = replace(corpus.vocabulary)  # without its index, which each worker makes

        def make() -> DataFrame:
            task = tasks.count_in_pieces(data, vocabulary, order, frequent)
            rows = run_tasks(place.lines(spark), task, tasks.ngram_schema(order))
            return rows.repartition(partitions, "key").drop("key")

        yield Work(spark, stages, stages.finished(f"ngrams-{order}-{partitions}", make), partitions, frequent)
    if not cluster.keep:
        stages.remove()


def frequent_words(corpus: Corpus, partitions: int) -> IntArray:
    """The words so frequent that the n-grams after one of them would fill a quarter of a partition, int64 `[F]`."""
    share = corpus.vocabulary.counts / corpus.tokens("train")
    return np.flatnonzero(share > 0.25 / partitions) if partitions > 1 else np.empty(0, dtype=np.int64)


def _parallelism(cluster: Cluster, spark: SparkSession) -> int:
    """The cores of the cluster; Spark Connect does not tell them."""
    return 2 if cluster.master.startswith("sc://") else int(spark.sparkContext.defaultParallelism)


def _sorted_orders(work: Work, corpus: Corpus, order: int) -> dict[int, int]:
    """Make the folder of the n-grams of all orders, sorted; returns the number of rows of each order."""
    spark, stages = work.spark, work.stages
    bos, numbers = corpus.vocabulary.bos, corpus.first_places

    def orders() -> DataFrame:
        task = tasks.count_orders(order, bos, numbers)
        return run_tasks(whole_files(spark, work.ngrams), task, tasks.order_schema(order))

    def in_order() -> DataFrame:
        return work.in_order(spark.read.parquet(stages.finished(f"orders-{order}", orders)), order)

    rows = spark.read.parquet(stages.finished(f"sorted-{order}", in_order))
    return {row["k"]: row["count"] for row in rows.groupBy("k").count().collect() if row["k"]}
