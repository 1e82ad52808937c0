"""The steps in order: from the settings to a store and its counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow.dataset import Dataset, field

from lmtool.config.groups import DataConfig
from lmtool.config.settings import data_settings
from lmtool.data.choose_vocabulary import listed_words
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess, settings_json
from lmtool.data.remote import is_address
from lmtool.data.store import Store
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, newest_ngram, unigram_counts
from lmtool.ngram.spark import _tasks
from lmtool.ngram.spark._text import Place, count_train, find_train
from lmtool.ngram.spark.cluster import LOCAL, Cluster, Stages, refusals, run_tasks, start
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.ngram.tables.trie import TrieBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 3  # version of the folder of finished steps
TOKENS_PER_PARTITION = 2_000_000


def prepare(cluster: Cluster, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Store:
    """Prepare the store of vocabulary, valid and test; train is counted."""
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
        counted=lambda: count_train(data, place, spark, stages, listed_words(others, data), others.faults),
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
    spark = start(cluster, progress=False)
    data = data_settings(corpus.provenance)
    place = find_train(data, data.elsewhere(), spark)
    stages = stages_of(cluster, data, place, corpus.path.parent)
    partitions = cluster.partitions or max(
        -(-corpus.tokens("train") // TOKENS_PER_PARTITION), _parallelism(cluster, spark)
    )
    vocabulary = replace(corpus.vocabulary)  # without its index, which each worker builds
    name = f"ngrams-{order}-{partitions}"

    def pieces() -> DataFrame:
        task = _tasks.count_in_pieces(data, vocabulary, order)
        return run_tasks(place.records(spark), task, _tasks.ngram_schema(order))

    def in_order() -> DataFrame:
        columns = _tasks.ngram_columns(order)
        rows = spark.read.parquet(stages.finished(f"pieces-{order}", pieces))
        rows = rows.repartitionByRange(partitions * (order - 1), *columns).sortWithinPartitions(*columns)
        return run_tasks(rows, _tasks.add_up(order), _tasks.ngram_schema(order))

    remedy = f"run again: finished steps are kept in {stages.address}; more counts.partitions need less memory"
    with refusals(f"counting n-grams of order {order} ({remedy})"):
        stages.finished(name, in_order)
    try:
        made = assemble_counts(stages.rows(name), corpus, order, storage)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(
            f"{stages.folder(name)} cannot be read ({error}): delete {stages.address}; run again"
        ) from error
    if not cluster.keep:
        stages.remove()
    return made


def assemble_counts(rows: Dataset, corpus: Corpus, order: int, storage: Storage) -> Counts:
    """Return the counts of orders 1 to `order` from rows of ngram_schema, all different and sorted."""
    wrong = "the text changed, or counts.folder is not one folder for all workers; delete it and run again"
    unigrams = unigram_counts(corpus.vocabulary)
    builder = TrieBuilder(len(corpus.vocabulary), storage)
    suffix: list[Packed] = []
    count = [unigrams.count[0]]
    expected = corpus.tokens("train")
    kind = whole_numbers_below(len(corpus.vocabulary) + 2 * expected)  # for numbers of n-grams and counts
    for k in range(2, order + 1):
        here = field("k") == k
        size = rows.count_rows(filter=here)
        keys = storage.empty(size, np.uint64)
        suffixes, counts = storage.empty(size, kind), storage.empty(size, kind)
        at = total = begins = 0
        for batch in rows.to_batches(columns=[*_tasks.ngram_columns(k)[1:], "count"], filter=here):
            *columns, number = (column.to_numpy() for column in batch.columns)
            words = np.stack(columns, axis=1).astype(np.int64)
            part = slice(at, at + len(words))
            keys[part], context, last = builder.parts(words)
            if (context < 0).any() or (last < 0).any():
                raise UserError(f"Spark counted an n-gram of order {k} without its parts: {wrong}")
            suffixes[part], counts[part] = last, number
            at, total = part.stop, total + int(number.sum())
            begins += int(number[words[:, 0] == unigrams.bos].sum())
            storage.keep_within()
        if total != expected:
            raise UserError(f"Spark counted {total:,} of {expected:,} tokens with n-grams of order {k}: {wrong}")
        expected -= begins  # n-grams without a longer context
        builder.add(keys)
        suffix.append(Packed.of(suffixes, builder.sizes[-2] - 1, storage))
        count.append(Packed.of(counts, storage=storage))
        storage.release()
    trie = builder.finish()
    newest = newest_ngram(trie, corpus.first_places, unigrams.bos, order - 1, storage)
    return Counts(trie, suffix, count, unigrams.bos, unigrams.unk, newest)


def _parallelism(cluster: Cluster, spark: SparkSession) -> int:
    """Return the number of cores of the cluster, or 2 with Spark Connect, which does not report it."""
    return 2 if cluster.master.startswith("sc://") else int(spark.sparkContext.defaultParallelism)
