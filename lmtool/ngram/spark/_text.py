"""Step 1: count the types of the train split in its place, and choose the vocabulary.

Types are ordered by their first position in the text, so that the vocabulary is that of `lmtool preprocess`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from lmtool.config.data import DataConfig, VocabularyConfig
from lmtool.data.choose_vocabulary import numbered, select
from lmtool.data.faults import SHOWN, STOP, Faults
from lmtool.data.readers import PARQUET, form_of, require_column
from lmtool.data.sources.base import ExternalCounts, ExternalText
from lmtool.data.tokenizer import BOS_ID, EOS_ID, RESERVED, UNK_ID
from lmtool.errors import RecordError, UserError
from lmtool.ngram.spark import _tasks
from lmtool.ngram.spark.cluster import Stages, refusals, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNSUPPORTED = (".xz", ".zip", ".zst")  # Spark would read them as plain text, or has no library for them


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
                if form_of(str(self.files[0][0])) == PARQUET:
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
    if not data.sentences:
        raise UserError("data.sentences=false: Spark counts no contexts that cross lines; use a line per sentence")
    if data.vocabulary.unit.is_subword:
        unit = data.vocabulary.unit.value
        raise UserError(f"data.vocabulary.unit={unit}: Spark counts words and characters; leave counts= out")
    with refusals("data.train"):
        found = [
            row
            for addresses in text.train
            for row in spark.read.format("binaryFile")
            .load(addresses)
            .select("path", "length", "modificationTime")
            .collect()
        ]
    found.sort(key=lambda row: row["path"])
    for row in found:
        if row["path"].endswith(UNSUPPORTED):
            raise UserError(f"{row['path']}: Spark reads plain text, .gz and .bz2: unpack it")
        require_column(row["path"], text.column, "data.column")
    return Place(text, [[row["path"], row["length"], str(row["modificationTime"])] for row in found])


def count_train(
    data: DataConfig, place: Place, spark: SparkSession, stages: Stages, given: list[str] | None, faults: Faults
) -> ExternalCounts:
    """Return the vocabulary of train, counted by Spark. given: its words in order; None to choose them. faults: gets
    those of records.
    """
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
        chosen = _chosen(open_words, data.vocabulary, given, spark)
        kept = chosen.select("word", "count", "first").collect()
        left = open_words.join(functions.broadcast(chosen.select("word")), "word", "left_anti")
        oov = left.agg(functions.sum("count").alias("count"), functions.min("first").alias("first")).collect()[0]
    kept.sort(key=lambda row: row["first"])
    unknown = [row for row in (oov, marks.get("<unk>")) if row is not None and row["count"]]
    counts = np.array([0, 0, 0, *(row["count"] for row in kept)], dtype=np.int64)
    counts[EOS_ID] = marks["</s>"]["count"]
    counts[UNK_ID] = sum(row["count"] for row in unknown)
    assert (EOS_ID, UNK_ID, BOS_ID) == (0, 1, 2)
    types_here = [*RESERVED, *(row["word"] for row in kept)]
    vocabulary, _, _ = select(types_here, counts, data.vocabulary, given=given, sentences=True)
    firsts: dict[str, Any] = {row["word"]: row["first"] for row in kept}
    if unknown:
        firsts["<unk>"] = min(row["first"] for row in unknown)
    numbers = numbered(firsts, vocabulary)
    return ExternalCounts(vocabulary, numbers, int(counts[EOS_ID]), int(oov["count"] or 0), int(empty or 0))


def _chosen(types: DataFrame, rules: VocabularyConfig, given: list[str] | None, spark: SparkSession) -> DataFrame:
    """Return the types that become words: the types of a list, or the most frequent types."""
    from pyspark.sql import functions

    if given is not None:
        listed = spark.createDataFrame([(word,) for word in given], "word string")
        return types.join(functions.broadcast(listed), "word", "left_semi")
    chosen = types.where(types["count"] >= rules.min_count)
    if rules.size is None:
        return chosen
    return chosen.orderBy(functions.desc("count"), functions.asc("first")).limit(rules.size)
