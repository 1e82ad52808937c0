"""Estimation on Spark; the driver's part is what is small: the unigrams, the smoother's parameters, the file."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.config.groups import EstimationRequest
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, from_last_start, unigram_counts
from lmtool.ngram.estimation.adjusted_counts import with_occurrences
from lmtool.ngram.estimation.estimate import table_of, unigram_probabilities, unused_weight
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.smoothers.base import MAX_R, Counting, Smoother
from lmtool.ngram.spark import prune, shares, tasks, weights
from lmtool.ngram.spark.assemble import assemble_table, latest
from lmtool.ngram.spark.cluster import Work, run_tasks, whole_files
from lmtool.ngram.spark.levels import Level, changes
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Sums:
    """What is known of all partitions.

    histograms: of each order from 2 on, int64 `[n + 1, MAX_R + 2]`. preceding: int64 `[V]`, of how many 2-grams each
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
    and the 2-grams of contexts in several partitions, with the rows that shares.estimate_rows makes of them.
    """

    smoother: Smoother
    unigrams: FloatArray
    unseen: float
    spread: shares.Spread
    spread_rows: list[pa.RecordBatch]


def estimate_on_spark(work: Work, request: EstimationRequest) -> BackoffTable:
    """Return the model of order n >= 2."""
    corpus, order, smoother, cutoffs = request.corpus, request.order, request.smoother, request.cutoffs
    threshold, storage = request.threshold, request.storage
    spark, stages = work.spark, work.stages
    bos, numbers = corpus.vocabulary.bos, corpus.first_places
    is_spread = np.zeros(bos + 1, dtype=bool)
    is_spread[work.frequent] = order > 2
    name = f"sums-{order}-{smoother.counting.name}-{hashlib.sha256(is_spread.tobytes()).hexdigest()[:10]}"
    stages.finished(name, lambda: _added(work, shares.sums(order, bos, numbers, is_spread, smoother.counting)))
    found = added_up(stages.batches(name), order, bos, numbers, smoother.counting)
    require_all(found.tokens, corpus)
    # Where contexts that are gone have a weight of their own, it takes the whole table to know which are.
    prunes = threshold is not None and not smoother.missing
    fit_to = (smoother, unigram_counts(corpus.vocabulary), order, cutoffs, is_spread)
    fitted = fit(found, *fit_to, divergence=prunes)
    known = [type(smoother).__qualname__, vars(smoother), cutoffs, is_spread]
    name = f"{'divergences' if prunes else 'estimates'}-{order}-{_fingerprint(known)}"

    def make() -> DataFrame:
        parameters = (smoother, fitted.unigrams, fitted.spread, cutoffs)
        task = shares.estimate_orders(order, bos, *parameters, divergence=prunes)
        schema = prune.divergence_schema(order) if prunes else shares.estimate_schema(order)
        return run_tasks(whole_files(spark, work.ngrams), task, schema)

    def estimates() -> DataFrame:
        rows = spark.read.parquet(stages.finished(name, make))
        if fitted.spread_rows:
            rows = rows.union(spark.createDataFrame(pa.Table.from_batches(fitted.spread_rows)))
        return rows

    if threshold is None or not prunes:
        table = _delivered(work, name, estimates, fitted, order, bos, storage)
        return table if threshold is None else prune_by_entropy(table, threshold, corpus.vocabulary.eos)
    pruned = f"{order}-{_fingerprint([*known, threshold])}"
    rest = partial(_pruned, work, pruned, estimates, fitted, order, corpus.vocabulary.eos, threshold)
    table = _delivered(work, f"weights-{pruned}", rest, fitted, order, bos, storage, unused=1.0)
    return replace(table, suffix_closed=False)


def _pruned(
    work: Work,
    name: str,
    estimates: Callable[[], DataFrame],
    fitted: Fitted,
    order: int,
    eos: int | None,
    threshold: float,
) -> DataFrame:
    """Rows of shares.estimate_schema of what entropy pruning keeps, from rows of prune.divergence_schema."""
    spark, stages, is_spread = work.spark, work.stages, fitted.spread.words
    log_unigrams = prune.unigrams_as_contexts(fitted.unigrams, eos)

    def kept() -> DataFrame:
        rows = work.together(estimates(), order, "w1", "w2")
        return run_tasks(rows, prune.keep(order, threshold, log_unigrams, is_spread), prune.kept_schema(order))

    rows = spark.read.parquet(stages.finished(f"pruned-{name}", kept))

    def pairs() -> DataFrame:
        return run_tasks(rows.where("k = 2").select("w1", "w2", "p"), weights.pairs_after(is_spread), weights.PAIRS)

    known = weights.weigh_pairs([], is_spread, log_unigrams)
    if is_spread.any():
        stages.finished(f"pairs-{name}", pairs)
        known = weights.weigh_pairs(stages.batches(f"pairs-{name}"), is_spread, log_unigrams)

    def weighed() -> DataFrame:
        together = work.together(rows, order, "key").drop("key")
        return run_tasks(together, weights.weigh(order, log_unigrams, known), shares.estimate_schema(order))

    return spark.read.parquet(stages.finished(f"weights-{name}", weighed))


def _delivered(
    work: Work,
    name: str,
    rows: Callable[[], DataFrame],
    fitted: Fitted,
    order: int,
    bos: int,
    storage: Storage,
    *,
    unused: float | None = None,
) -> BackoffTable:
    """The back-off table of rows of shares.estimate_schema, sorted by Spark. unused: as `assembled` has it."""
    stage = work.stages.finished(f"sorted-{name}", lambda: work.in_order(rows(), order))
    found = work.spark.read.parquet(stage).where("p is not null").groupBy("k").count().collect()
    sizes = {row["k"]: row["count"] for row in found}
    return assembled(work.stages.batches(f"sorted-{name}"), sizes, fitted, order, bos, storage, unused=unused)


def assembled(
    batches: Iterator[pa.RecordBatch],
    sizes: dict[int, int],
    fitted: Fitted,
    order: int,
    bos: int,
    storage: Storage,
    *,
    unused: float | None = None,
) -> BackoffTable:
    """The back-off table of sorted rows. sizes: the number of n-grams of each order from 2 on. unused: the back-off
    weight of n-grams that nothing follows; the smoother's if None.
    """
    unused = unused_weight(fitted.smoother) if unused is None else unused
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


def _fingerprint(known: list[Any]) -> str:
    return hashlib.sha256(pickle.dumps(tuple(known), protocol=5)).hexdigest()[:10]


def added_up(batches: Iterator[pa.RecordBatch], order: int, bos: int, numbers: IntArray, counting: Counting) -> Sums:
    """What all partitions say together, from rows of shares.SUMS; numbers: as tasks.count_orders has them."""
    histograms = np.zeros((order + 1, MAX_R + 2), dtype=np.int64)
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
    *,
    divergence: bool = False,
) -> Fitted:
    """Fit the smoother's parameters of all orders, and estimate what is the driver's.

    unigrams: the counts of order 1. is_spread: bool `[V]`, the words whose 2-grams lie in several partitions.
    divergence: as shares.estimate_orders has it.
    """
    p, unseen = _fit(smoother, unigrams, found, order)
    level, bos = found.spread, unigrams.bos
    if level is None:
        return Fitted(smoother, p, unseen, shares.Spread(is_spread, np.empty(0, np.uint64), np.empty(0)), [])
    shorter = p[level.words[1]]
    pairs_p, weight = shares.estimate_level(level, smoother, None, shorter, cutoffs, bos, order)
    given = (pairs_p, shorter, weight, level.real, cutoffs, order)
    rows = list(shares.estimate_rows(level, *given, divergence=divergence))
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
        n = found.histograms[k, : MAX_R + 1]
        moved = k < order and k <= len(found.newest)
        smoother.fit(k, n, with_occurrences(n, *values[k]) if moved else n)
    return unigram_probabilities(unigrams, smoother, a, np.ones(len(a), dtype=np.bool_))
