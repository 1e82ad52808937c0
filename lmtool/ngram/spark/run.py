"""The steps in order: from the settings to a store and its counts.

Types are ordered by their first position in the text, so that the vocabulary is that of `lmtool preprocess`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow.dataset import Dataset, field

from lmtool.config.data import DataConfig, VocabularyConfig
from lmtool.config.settings import data_settings
from lmtool.data.choose_vocabulary import listed_words, occurrence_ranks, select
from lmtool.data.corpus import Corpus
from lmtool.data.faults import SHOWN, STOP, Faults
from lmtool.data.preprocess import preprocess, settings_json
from lmtool.data.readers import PARQUET, format_of_name, require_column
from lmtool.data.remote import is_address
from lmtool.data.sources.base import ExternalCounts, ExternalText
from lmtool.data.store import Store
from lmtool.data.tokenizer import BOS_ID, EOS_ID, RESERVED, UNK_ID
from lmtool.errors import RecordError, UserError
from lmtool.ngram.counting.counts import Counts, newest_ngram, unigram_counts
from lmtool.ngram.spark import _tasks
from lmtool.ngram.spark.cluster import LOCAL, Stages, refusals, run_tasks, start
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.ngram.tables.trie import TrieBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNSUPPORTED = (".xz", ".zip", ".zst")  # Spark would read them as plain text, or has no library for them
FORMAT = 3  # version of the folder of finished steps
TOKENS_PER_PARTITION = 2_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """The place of the train split. files: the address, size and time of change of each of its files."""

    text: ExternalText
    files: list[list[object]]

    def records(self, spark: SparkSession) -> DataFrame:
        """Return its records: the columns of _tasks.RECORDS. A document without text is NO_TEXT."""
        from pyspark.sql import functions

        frames = []
        for number, addresses in enumerate(self.text.train):
            if self.text.column is None:
                rows, lines = spark.read.option("lineSep", "\n").text(addresses), functions.col("value")
            else:
                column = f"`{self.text.column}`"
                if format_of_name(str(self.files[0][0])) == PARQUET:
                    rows = spark.read.parquet(*addresses)
                else:
                    rows = spark.read.schema(f"{column} string").json(addresses)
                document = functions.coalesce(functions.col(column), functions.lit(_tasks.NO_TEXT.decode()))
                lines = functions.regexp_replace(functions.regexp_replace(document, "\r\n", "\n"), "\\n\\z", "")
            frames.append(
                rows.select(
                    lines.alias("value"),
                    functions.lit(number).alias("part"),
                    functions.col("_metadata.file_path").alias("path"),
                    functions.col("_metadata.file_block_start").alias("start"),
                )
            )
        return reduce(lambda whole, frame: whole.union(frame), frames)


def find_train(data: DataConfig, text: ExternalText, spark: SparkSession) -> Place:
    """Find the train split."""
    data.require_usual_tokens("Spark counts a sentence per line, with <s>, </s> and <unk>; leave it out")
    if data.vocabulary.unit.is_subword:
        unit = data.vocabulary.unit.value
        raise UserError(f"data.vocabulary.unit={unit}: Spark counts words and characters; leave counts= out")
    with refusals("data.train"):
        rows = [
            row
            for addresses in text.train
            for row in spark.read.format("binaryFile")
            .load(addresses)
            .select("path", "length", "modificationTime")
            .collect()
        ]
    rows.sort(key=lambda row: row["path"])
    for row in rows:
        if row["path"].endswith(UNSUPPORTED):
            raise UserError(f"{row['path']}: Spark reads plain text, .gz and .bz2: unpack it")
        require_column(row["path"], text.column, "data.column")
    return Place(text, [[row["path"], row["length"], str(row["modificationTime"])] for row in rows])


def count_train(
    data: DataConfig, place: Place, spark: SparkSession, stages: Stages, word_list: list[str] | None, faults: Faults
) -> ExternalCounts:
    """Return the vocabulary of train, counted by Spark. word_list: its words, or None. faults: gets those found."""
    from pyspark.sql import functions

    def make() -> DataFrame:
        types = run_tasks(place.records(spark), _tasks.count_types(data), _tasks.TYPES)
        first = functions.min(functions.struct("part", "path", "start", "place"))
        return types.groupBy("what", "word").agg(functions.sum("count").alias("count"), first.alias("first"))

    with refusals("counting the types"):
        types = spark.read.parquet(stages.finished("types", make))
        problems = types.where(types["what"] == _tasks.PROBLEM)
        first_problems = [row["word"] for row in problems.orderBy("first").limit(SHOWN).collect()]
        if first_problems and data.on_error == STOP:
            raise RecordError(first_problems[0])
        faults.add(first_problems)
        faults.count += (problems.agg(functions.sum("count")).collect()[0][0] or 0) - len(first_problems)
        empty = types.where(types["what"] == _tasks.EMPTY_LINES).agg(functions.sum("count")).collect()[0][0]
        words = types.where(types["what"] == _tasks.WORD)
        marks = {row["word"]: row for row in words.where(words["word"].isin(*RESERVED)).collect()}
        open_words = words.where(~words["word"].isin(*RESERVED))
        if "</s>" not in marks:
            raise UserError("the train split has no tokens: choose a data set with text in train")
        chosen = _chosen(open_words, data.vocabulary, word_list, spark)
        word_rows = chosen.select("word", "count", "first").collect()
        left = open_words.join(functions.broadcast(chosen.select("word")), "word", "left_anti")
        oov = left.agg(functions.sum("count").alias("count"), functions.min("first").alias("first")).collect()[0]
    word_rows.sort(key=lambda row: row["first"])
    unknown = [row for row in (oov, marks.get("<unk>")) if row is not None and row["count"]]
    counts = np.array([0, 0, 0, *(row["count"] for row in word_rows)], dtype=np.int64)
    counts[EOS_ID] = marks["</s>"]["count"]
    counts[UNK_ID] = sum(row["count"] for row in unknown)
    assert (EOS_ID, UNK_ID, BOS_ID) == (0, 1, 2)
    types_here = [*RESERVED, *(row["word"] for row in word_rows)]
    vocabulary, _, _ = select(types_here, counts, data.vocabulary, word_list=word_list, sentences=True)
    firsts: dict[str, Any] = {row["word"]: row["first"] for row in word_rows}
    if unknown:
        firsts["<unk>"] = min(row["first"] for row in unknown)
    numbers = occurrence_ranks(firsts, vocabulary)
    return ExternalCounts(vocabulary, numbers, int(counts[EOS_ID]), int(oov["count"] or 0), int(empty or 0))


def _chosen(types: DataFrame, rules: VocabularyConfig, word_list: list[str] | None, spark: SparkSession) -> DataFrame:
    """Return the types that become words: the types of a list, or the most frequent types."""
    from pyspark.sql import functions

    if word_list is not None:
        listed = spark.createDataFrame([(word,) for word in word_list], "word string")
        return types.join(functions.broadcast(listed), "word", "left_semi")
    chosen = types.where(types["count"] >= rules.min_count)
    if rules.size is None:
        return chosen
    return chosen.orderBy(functions.desc("count"), functions.asc("first")).limit(rules.size)


def prepare(cluster: Any, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Store:
    """Prepare the store of vocabulary, valid and test; train is counted. cluster: the settings."""
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


def stages_of(cluster: Any, data: DataConfig, place: Place, store_dir: str | Path) -> Stages:
    """Return the folder of the steps that Spark finishes for this text and these settings."""
    identity = json.dumps([FORMAT, settings_json(data), place.files])
    name = f"spark-{data.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"
    root = cluster.folder.rstrip("/") if cluster.folder is not None else str(store_dir)
    return Stages(f"{root if is_address(root) else f'{LOCAL}{Path(root).resolve()}'}/{name}")


def count(cluster: Any, corpus: Corpus, order: int, storage: Storage) -> Counts:
    """Return the counts of orders 1 to `order` of the train split of a store that `prepare` made."""
    if order == 1:
        return unigram_counts(corpus.vocabulary)
    spark = start(cluster, progress=False)
    data = data_settings(corpus.provenance)
    place = find_train(data, data.elsewhere(), spark)
    stages = stages_of(cluster, data, place, corpus.path.parent)
    # Spark Connect does not report the number of cores.
    cores = 2 if cluster.master.startswith("sc://") else int(spark.sparkContext.defaultParallelism)
    partitions = cluster.partitions or max(-(-corpus.tokens("train") // TOKENS_PER_PARTITION), cores)
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
