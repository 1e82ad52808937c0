"""Estimation on Spark: the driver estimates the smoother's parameters, unigrams and spread 2-grams."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.config.groups import EstimationRequest
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, unigram_counts
from lmtool.ngram.estimation.adjusted_counts import with_occurrences
from lmtool.ngram.estimation.formulas import default_backoff, table_of, unigram_probabilities
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.smoothers.base import MAX_R, Counting, Smoother
from lmtool.ngram.spark import _pruning, _shares
from lmtool.ngram.spark._assemble import assemble_table
from lmtool.ngram.spark._levels import Level, changes
from lmtool.ngram.spark._shares import Estimation
from lmtool.ngram.spark.cluster import Work, run_tasks, whole_files
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Sums:
    """The sums over all partitions.

    histograms: of each order from 2 on, int64 `[n + 1, MAX_R + 2]`. preceding: int64 `[V]`, the number of 2-grams that
    end in each word. spread: the 2-grams of spread contexts, or None. newest: the words of the n-gram that KenLM sorts
    last, `[at most n - 1]`, and by order the a and the count of its last words. tokens: of the text.
    """

    histograms: npt.NDArray[np.int64]
    preceding: IntArray
    spread: Level | None
    newest: IntArray
    newest_counts: dict[int, tuple[int, int]]
    tokens: int


def estimate_on_spark(work: Work, request: EstimationRequest) -> BackoffTable:
    """Return the model of order n >= 2."""
    corpus, order, smoother, threshold = request.corpus, request.order, request.smoother, request.threshold
    spark, stages = work.spark, work.stages
    bos, ranks = corpus.vocabulary.bos, corpus.first_places
    is_spread = np.zeros(bos + 1, dtype=bool)
    is_spread[work.frequent] = order > 2

    def added() -> DataFrame:
        from pyspark.sql import functions

        task = _shares.sums(order, bos, ranks, is_spread, smoother.counting)
        rows = run_tasks(whole_files(spark, work.ngrams), task, _shares.SUMS)
        return rows.groupBy("what", "a", "b").agg(*(functions.sum(column).alias(column) for column in ("x", "y")))

    name = f"sums-{order}-{smoother.counting.name}-{hashlib.sha256(is_spread.tobytes()).hexdigest()[:10]}"
    stages.finished(name, added)
    found = added_up(stages.batches(name), order, bos, ranks, smoother.counting)
    require_all(found.tokens, corpus)
    # If contexts that are not in the table have a weight, only the whole table says which contexts these are.
    prunes = threshold is not None and not smoother.missing
    unigrams = unigram_counts(corpus.vocabulary)
    model, spread_rows = fit(found, smoother, unigrams, order, request.cutoffs, is_spread, prunes=prunes)
    known = [type(smoother).__qualname__, vars(smoother), request.cutoffs, is_spread]
    name = f"{'divergences' if prunes else 'estimates'}-{order}-{_fingerprint(known)}"

    def estimates() -> DataFrame:
        stage = stages.finished(name, lambda: run_tasks(whole_files(spark, work.ngrams), model.task(), model.schema))
        rows = spark.read.parquet(stage)
        if spread_rows:
            rows = rows.union(spark.createDataFrame(pa.Table.from_batches(spread_rows)))
        return rows

    if threshold is None:
        return _delivered(work, name, estimates, model, request.storage)
    eos = corpus.vocabulary.eos
    if not prunes:
        return prune_by_entropy(_delivered(work, name, estimates, model, request.storage), threshold, eos)
    pruned = f"{order}-{_fingerprint([*known, threshold])}"
    table = _delivered(
        work,
        f"weights-{pruned}",
        lambda: _pruned(work, pruned, estimates, model, eos, threshold),
        model,
        request.storage,
    )
    return replace(table, suffix_closed=False)


def _pruned(
    work: Work, name: str, estimates: Callable[[], DataFrame], model: Estimation, eos: int | None, threshold: float
) -> DataFrame:
    """Return rows of estimate_schema of what entropy pruning keeps, from rows of divergence_schema."""
    spark, stages, order, is_spread = work.spark, work.stages, model.order, model.is_spread

    def kept() -> DataFrame:
        rows = work.together(estimates(), order, "w1", "w2")
        task = _pruning.keep(order, threshold, model.unigrams, eos, is_spread)
        return run_tasks(rows, task, _pruning.kept_schema(order))

    rows = spark.read.parquet(stages.finished(f"pruned-{name}", kept))

    def pairs() -> DataFrame:
        return run_tasks(rows.where("k = 2").select("w1", "w2", "p"), _pruning.pairs_after(is_spread), _pruning.PAIRS)

    known = _pruning.KeptPairs.of([])
    if is_spread.any():
        stages.finished(f"pairs-{name}", pairs)
        known = _pruning.KeptPairs.of(stages.batches(f"pairs-{name}"))

    def weighed() -> DataFrame:
        together = work.together(rows, order, "key").drop("key")
        return run_tasks(together, _pruning.weigh(order, model.unigrams, known), _shares.estimate_schema(order))

    return spark.read.parquet(stages.finished(f"weights-{name}", weighed))


def _delivered(
    work: Work, name: str, rows: Callable[[], DataFrame], model: Estimation, storage: Storage
) -> BackoffTable:
    """Return the back-off table of rows of estimate_schema, sorted by Spark."""
    stage = work.stages.finished(f"sorted-{name}", lambda: work.in_order(rows(), model.order))
    found = work.spark.read.parquet(stage).where("p is not null").groupBy("k").count().collect()
    sizes = {row["k"]: row["count"] for row in found}
    return assembled(work.stages.batches(f"sorted-{name}"), sizes, model, storage)


def assembled(
    batches: Iterator[pa.RecordBatch], sizes: dict[int, int], model: Estimation, storage: Storage
) -> BackoffTable:
    """Return the back-off table of sorted rows. sizes: the number of n-grams of each order from 2 on."""
    unused = 1.0 if model.prunes else default_backoff(model.smoother)
    arrays = assemble_table(batches, sizes, model.unigrams, unused, model.order, storage)
    return table_of(model.smoother, *arrays, model.bos, model.unseen)


def require_all(tokens: int, corpus: Corpus) -> None:
    """Raise UserError if Spark did not count as many tokens as its vocabulary has: a file was lost, or changed."""
    if tokens != corpus.tokens("train"):
        raise UserError(
            f"Spark counted {tokens:,} of {corpus.tokens('train'):,} tokens: the text changed, or counts.folder is not "
            "one folder for all workers; delete it and run again"
        )


def _fingerprint(known: list[Any]) -> str:
    return hashlib.sha256(pickle.dumps(tuple(known), protocol=5)).hexdigest()[:10]


def added_up(batches: Iterator[pa.RecordBatch], order: int, bos: int, ranks: IntArray, counting: Counting) -> Sums:
    """Return the sums over all partitions, from rows of _shares.SUMS; ranks: as of kenlm_ranks."""
    histograms = np.zeros((order + 1, MAX_R + 2), dtype=np.int64)
    preceding = np.zeros(bos + 1, dtype=np.int64)
    tokens = 0
    pairs: list[list[npt.NDArray[Any]]] = []
    newest: dict[tuple[int, ...], dict[int, tuple[int, int]]] = {}  # by the n-gram, by order: a and count
    for batch in batches:
        what = np.array(batch.column("what").to_pylist())
        a, b, x, y = (batch.column(column).to_numpy() for column in "abxy")
        here = what == _shares.HISTOGRAM
        histograms[a[here], b[here]] += x[here]
        tokens += int(x[what == _shares.TOKENS].sum())
        here = what == _shares.PRECEDING
        preceding[a[here]] += x[here]
        here = what == _shares.SPREAD
        pairs.append([column[here] for column in (a, b, x, y)])
        for at in np.flatnonzero(np.char.startswith(what, _shares.NEWEST)) if len(what) else []:
            ngram = tuple(map(int, str(what[at]).split()[1:]))
            newest.setdefault(ngram, {})[int(a[at])] = (int(x[at]), int(y[at]))
    last = max(newest, key=lambda ngram: ranks[list(ngram[:0:-1])].tolist())  # without the first word: see newest_of
    start = max([1, *(at for at, word in enumerate(last) if word == bos)])
    words, known = np.array(last[start:], dtype=np.int64), newest[last]
    spread = _spread([np.concatenate(columns) for columns in zip(*pairs, strict=True)])
    if spread is not None:
        a_of = _shares.adjusted(spread, counting, bos, order == 2)
        histograms[2] += _shares.histogram(a_of)
        preceding += np.bincount(spread.words[1], minlength=bos + 1)
        if len(words) >= 2:
            pair = np.flatnonzero((spread.words[0] == words[-2]) & (spread.words[1] == words[-1]))
            if len(pair):
                known[2] = int(a_of[pair[0]]), int(spread.count[pair[0]])
    return Sums(histograms, preceding, spread, words, known, tokens)


def _spread(columns: list[npt.NDArray[Any]]) -> Level | None:
    """Return the 2-grams of spread contexts as a level, given their words, counts and numbers of words before them."""
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
    prunes: bool = False,
) -> tuple[Estimation, list[pa.RecordBatch]]:
    """Fit the smoother's parameters of all orders; return the model to estimate, and the rows of spread 2-grams.

    unigrams: the counts of order 1. is_spread, prunes: as of Estimation.
    """
    p, unseen = _fit(smoother, unigrams, found, order)
    none = np.empty(0, dtype=np.uint64), np.empty(0)
    model = Estimation(order, smoother, cutoffs, prunes, p, unseen, is_spread, *none)
    level = found.spread
    if level is None:
        return model, []
    shorter = p[level.words[1]]
    spread_p, weight = model.estimate(level, shorter)
    rows = list(model.rows(level, spread_p, shorter, weight, level.real))
    return replace(model, spread_keys=_shares.pair_keys(level, model.bos), spread_p=spread_p), rows


def _fit(smoother: Smoother, unigrams: Counts, found: Sums, order: int) -> tuple[FloatArray, float]:
    """Fit the smoother's parameters of all orders; return p of unigrams `[V]` and of types outside the vocabulary."""
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
    found.histograms[1] = _shares.histogram(a)
    for k in range(1, order + 1):
        n = found.histograms[k, : MAX_R + 1]
        moved = k < order and k <= len(found.newest)
        smoother.fit(k, n, with_occurrences(n, *values[k]) if moved else n)
    return unigram_probabilities(unigrams, smoother, a, np.ones(len(a), dtype=np.bool_))
