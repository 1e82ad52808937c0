"""Estimation on Spark; the driver's part is what is small: the unigrams, the smoother's parameters, the file."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.counts import Counts, from_last_start, unigram_counts
from lmtool.ngram.estimate import table_of, unigram_probabilities, unused_weight, with_occurrences
from lmtool.ngram.smoothers.base import LARGEST, Counting, Smoother
from lmtool.ngram.spark import shares, tasks
from lmtool.ngram.spark.assemble import assemble_table, latest
from lmtool.ngram.spark.cluster import Work, run_tasks, whole_files
from lmtool.ngram.spark.levels import Level, changes
from lmtool.ngram.storage import Storage
from lmtool.ngram.table import BackoffTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Sums:
    """What is known of all partitions.

    histograms: of each order from 2 on, int64 `[n + 1, LARGEST + 2]`. preceding: int64 `[V]`, of how many 2-grams each
    word is the last. spread: the 2-grams of contexts in several partitions, None where there are none. newest: the
    words of the n-gram that KenLM comes to last, `[at most n - 1]`, and by order its last words' a and count. tokens:
    how many the text has.
    """

    histograms: npt.NDArray[np.int64]
    preceding: IntArray
    spread: Level | None
    newest: IntArray
    newest_counts: dict[int, tuple[int, int]]
    tokens: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """A smoother with its parameters, and what the driver has estimated: p of the unigrams `[V]` and of unseen types,
    and the 2-grams of contexts in several partitions, with their rows of shares.estimate_schema.
    """

    smoother: Smoother
    unigrams: FloatArray
    unseen: float
    spread: shares.Spread
    spread_rows: list[pa.RecordBatch]


def estimate_on_spark(
    work: Work, corpus: Corpus, order: int, smoother: Smoother, cutoffs: list[int] | None, storage: Storage
) -> BackoffTable:
    """The model of order n >= 2. cutoffs: one per order, or None."""
    spark, stages = work.spark, work.stages
    bos, numbers = corpus.vocabulary.bos, corpus.first_places
    is_spread = np.zeros(bos + 1, dtype=bool)
    is_spread[work.frequent] = order > 2
    name = f"sums-{order}-{smoother.counting.name}-{hashlib.sha256(is_spread.tobytes()).hexdigest()[:10]}"
    stages.finished(name, lambda: _added(work, shares.sums(order, bos, numbers, is_spread, smoother.counting)))
    found = added_up(stages.batches(name), order, bos, numbers, smoother.counting)
    require_all(found.tokens, corpus)
    fitted = fit(found, smoother, unigram_counts(corpus.vocabulary), order, cutoffs, is_spread)
    name = f"estimates-{order}-{_fingerprint(smoother, cutoffs, is_spread)}"

    def make() -> DataFrame:
        task = shares.estimate_orders(order, bos, smoother, fitted.unigrams, fitted.spread, cutoffs)
        return run_tasks(whole_files(spark, work.ngrams), task, shares.estimate_schema(order))

    def in_order() -> DataFrame:
        rows = spark.read.parquet(stages.finished(name, make))
        if fitted.spread_rows:
            rows = rows.union(spark.createDataFrame(pa.Table.from_batches(fitted.spread_rows)))
        return work.in_order(rows, order)

    rows = spark.read.parquet(stages.finished(f"sorted-{name}", in_order))
    sizes = {row["k"]: row["count"] for row in rows.where("p is not null").groupBy("k").count().collect()}
    return assembled(stages.batches(f"sorted-{name}"), sizes, fitted, order, bos, storage)


def assembled(
    batches: Iterator[pa.RecordBatch], sizes: dict[int, int], fitted: Fitted, order: int, bos: int, storage: Storage
) -> BackoffTable:
    """The back-off table of sorted rows; sizes: the number of n-grams of each order from 2 on."""
    unused = unused_weight(fitted.smoother)
    arrays = assemble_table(batches, sizes, fitted.unigrams, unused, order, storage)
    return table_of(fitted.smoother, *arrays, bos, fitted.unseen)


def require_all(tokens: int, corpus: Corpus) -> None:
    """Raise UserError where Spark did not count as many tokens as its vocabulary has: a file was lost, or changed."""
    if tokens != corpus.tokens("train"):
        raise UserError(
            f"Spark counted {tokens:,} of {corpus.tokens('train'):,} tokens: the text changed, or counts.folder is not "
            "one folder for all workers; delete it and run again"
        )


def _added(work: Work, task: tasks.Task) -> DataFrame:
    from pyspark.sql import functions

    rows = run_tasks(whole_files(work.spark, work.ngrams), task, shares.SUMS)
    return rows.groupBy("what", "a", "b").agg(*(functions.sum(column).alias(column) for column in ("x", "y")))


def _fingerprint(smoother: Smoother, cutoffs: list[int] | None, is_spread: npt.NDArray[np.bool_]) -> str:
    known = pickle.dumps((type(smoother).__qualname__, vars(smoother), cutoffs, is_spread), protocol=5)
    return hashlib.sha256(known).hexdigest()[:10]


def added_up(batches: Iterator[pa.RecordBatch], order: int, bos: int, numbers: IntArray, counting: Counting) -> Sums:
    """What all partitions say together, from rows of shares.SUMS; numbers: as tasks.count_orders has them."""
    histograms = np.zeros((order + 1, LARGEST + 2), dtype=np.int64)
    preceding = np.zeros(bos + 1, dtype=np.int64)
    tokens = 0
    pairs: list[list[npt.NDArray[Any]]] = []
    newest: dict[tuple[int, ...], dict[int, tuple[int, int]]] = {}  # by the n-gram, by order: a and count
    for batch in batches:
        what = np.array(batch.column("what").to_pylist())
        a, b, x, y = (batch.column(column).to_numpy() for column in "abxy")
        here = what == shares.HISTOGRAM
        histograms[a[here], b[here]] += x[here]
        tokens += int(x[what == shares.TOKENS].sum())
        here = what == shares.PRECEDING
        preceding[a[here]] += x[here]
        here = what == shares.SPREAD
        pairs.append([column[here] for column in (a, b, x, y)])
        for at in np.flatnonzero(np.char.startswith(what, shares.NEWEST)) if len(what) else []:
            ngram = tuple(map(int, str(what[at]).split()[1:]))
            newest.setdefault(ngram, {})[int(a[at])] = (int(x[at]), int(y[at]))
    ngrams = [np.array(ngram) for ngram in newest]
    last = latest(ngrams, numbers)
    words, known = from_last_start(ngrams[last][1:], bos), list(newest.values())[last]
    spread = _spread([np.concatenate(columns) for columns in zip(*pairs, strict=True)])
    if spread is not None:
        a_of = shares.adjusted(spread, counting, bos, order == 2)
        histograms[2] += shares.histogram(a_of)
        preceding += np.bincount(spread.words[1], minlength=bos + 1)
        if len(words) >= 2:
            pair = np.flatnonzero((spread.words[0] == words[-2]) & (spread.words[1] == words[-1]))
            if len(pair):
                known[2] = int(a_of[pair[0]]), int(spread.count[pair[0]])
    return Sums(histograms, preceding, spread, words, known, tokens)


def _spread(columns: list[npt.NDArray[Any]]) -> Level | None:
    """The 2-grams of contexts in several partitions as a level, from their words, counts and words before them."""
    first, second, count, preceding = columns
    if not len(first):
        return None
    place = np.lexsort((second, first))
    words = [first[place], second[place]]
    context = np.cumsum(changes(words[:1])) - 1
    return Level(words, context, count[place], preceding[place], None, np.ones(len(count), dtype=bool))


def fit(
    found: Sums,
    smoother: Smoother,
    unigrams: Counts,
    order: int,
    cutoffs: list[int] | None,
    is_spread: npt.NDArray[np.bool_],
) -> Fitted:
    """Fit the smoother's parameters of all orders, and estimate what is the driver's.

    unigrams: the counts of order 1. is_spread: bool `[V]`, the words whose 2-grams lie in several partitions.
    """
    p, unseen = _fit(smoother, unigrams, found, order)
    level, bos = found.spread, unigrams.bos
    if level is None:
        return Fitted(smoother, p, unseen, shares.Spread(is_spread, np.empty(0, np.uint64), np.empty(0)), [])
    pairs_p, weight = shares.estimate_level(level, smoother, p, None, np.empty(0), cutoffs, bos, order)
    rows = list(shares.estimate_rows(level, pairs_p, weight, level.real, cutoffs, order))
    return Fitted(smoother, p, unseen, shares.Spread(is_spread, shares.pair_keys(level, bos), pairs_p), rows)


def _fit(smoother: Smoother, unigrams: Counts, found: Sums, order: int) -> tuple[FloatArray, float]:
    """Fit the smoother's parameters of all orders; returns the unigrams' p `[V]` and that of unseen types."""
    if smoother.counting is Counting.continuations:
        a = found.preceding.copy()
    elif smoother.counting is Counting.occurrences:
        a = unigrams.count[0].all()
    else:
        a = np.zeros(unigrams.trie.vocabulary_size, dtype=np.int64)
    a[unigrams.bos] = 0
    values = dict(found.newest_counts)
    if len(found.newest):
        word = int(found.newest[-1])
        values[1] = int(a[word]), int(unigrams.count[0].get(word, word + 1)[0])
    found.histograms[1] = shares.histogram(a)
    for k in range(1, order + 1):
        n = found.histograms[k, : LARGEST + 1]
        moved = k < order and k <= len(found.newest)
        smoother.fit(k, n, with_occurrences(n, *values[k]) if moved else n)
    return unigram_probabilities(unigrams, smoother, a)
