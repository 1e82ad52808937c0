"""Step 3 on Spark's workers: what the driver must know of all partitions to fit a smoother, and the estimates.

The formulas are those of lmtool.ngram.estimation.estimate, on the same numbers in the same order, so that the results
are equal to the bit. A context whose last word is so frequent that its n-grams lie in several partitions has its
2-grams added up by the driver, which estimates them and tells the workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.ngram.estimation.estimate import estimate_contexts
from lmtool.ngram.smoothers.base import MAX_R, Counting, Smoother
from lmtool.ngram.spark.levels import Level
from lmtool.ngram.spark.prune import divergence_rows
from lmtool.ngram.spark.tasks import ROWS_AT_ONCE, Batches, Task, newest_of, of_levels, rows_of, rows_schema
from lmtool.ngram.tables.packed import width_of
from lmtool.system.arrays import FloatArray, IntArray

Array = npt.NDArray[Any]

# A row of `sums`: what it is, and two numbers of it; x and y add up over the partitions.
SUMS = "what string, a int, b int, x long, y long"
HISTOGRAM, PRECEDING, SPREAD = "n-grams of an adjusted count", "2-grams before a word", "2-gram in several partitions"
NEWEST, TOKENS = "newest", "tokens"


@dataclass(frozen=True, slots=True)
class Spread:
    """The 2-grams of contexts that lie in several partitions: their keys first word << width | second word, ascending
    uint64 `[S]`, and p `[S]`. words: bool `[V]`, which contexts these are.
    """

    words: npt.NDArray[np.bool_]
    keys: Array
    p: FloatArray


def adjusted(level: Level, counting: Counting, bos: int, highest: bool) -> IntArray:
    """a `[N]` of a level's n-grams, as estimation.adjusted_counts has it."""
    if highest or counting is Counting.occurrences:
        return level.count
    below = level.preceding if counting is Counting.continuations else 0
    return np.where(level.words[0] == bos, level.count, below)


def histogram(a: IntArray) -> IntArray:
    """How many have each of 0 to MAX_R, and how many have more, int64 `[MAX_R + 2]`."""
    return np.bincount(np.minimum(a, MAX_R + 1), minlength=MAX_R + 2)


def sums(order: int, bos: int, numbers: IntArray, is_spread: npt.NDArray[np.bool_], counting: Counting) -> Task:
    """What the driver adds up over the partitions of count_in_pieces: rows of SUMS.

    numbers: as tasks.count_orders has them. is_spread: bool `[V]`, the words whose 2-grams lie in several partitions.

    HISTOGRAM: k, r, the number of n-grams of order k with a = r. PRECEDING: a word, and of how many 2-grams it is the
    last. SPREAD: the words of a 2-gram, its count, and the number of words before it. NEWEST and the words of this
    partition's candidate for the n-gram that KenLM comes to last: k, and a and the count of its last k words. TOKENS:
    how many there are.
    """

    def rows(made: list[Level]) -> Batches:
        found_rows: list[Any] = []
        for level in made:
            mine = estimated_here(level, is_spread)
            a = adjusted(level, counting, bos, level.order == order)
            found = histogram(a[mine])
            found_rows.append((HISTOGRAM, np.full(len(found), level.order), np.arange(len(found)), found, found * 0))
        pairs = made[-1]
        spread = is_spread[pairs.words[0]]
        some = [column[spread] for column in pairs.words]
        found_rows.append((SPREAD, *some, pairs.count[spread], pairs.preceding[spread]))
        preceding = np.bincount(pairs.words[1][~spread])
        seen = np.flatnonzero(preceding)
        found_rows.append((TOKENS, np.zeros(1), np.zeros(1), pairs.count.sum(keepdims=True), np.zeros(1)))
        found_rows.append((PRECEDING, seen, seen * 0, preceding[seen], seen * 0))
        for kind, a, b, x, y in found_rows:
            for at in range(0, len(a), ROWS_AT_ONCE):
                here = slice(at, at + ROWS_AT_ONCE)
                yield _sums_batch(kind, a[here], b[here], x[here], y[here])
        yield from _newest_rows(made, numbers, counting, bos)

    return of_levels(order, bos, rows)


def estimated_here(level: Level, is_spread: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which n-grams of a partition's level it estimates itself, bool `[N]`."""
    return level.real if level.order > 2 else ~is_spread[level.words[0]]


def above_cutoff(level: Level, cutoffs: list[int] | None) -> npt.NDArray[np.bool_] | None:
    """Which n-grams of a level stay, bool `[N]`; None where nothing is cut off."""
    return level.count > cutoffs[level.order - 1] if cutoffs and any(cutoffs) else None


def _newest_rows(made: list[Level], numbers: IntArray, counting: Counting, bos: int) -> Batches:
    newest = newest_of(made[0].words, numbers)
    if newest is None:
        return
    name = f"{NEWEST} {' '.join(map(str, newest))}"
    for level in made[1:]:  # below the highest order
        k = level.order
        here = np.logical_and.reduce(
            [column == word for column, word in zip(level.words, newest[-k:], strict=True)] + [level.real]
        )
        at = np.flatnonzero(here)
        if len(at):
            a = adjusted(level, counting, bos, False)
            yield _sums_batch(name, np.array([k]), np.array([0]), a[at], level.count[at])
    yield _sums_batch(name, np.array([0]), np.array([0]), np.array([0]), np.array([0]))


def _sums_batch(what: str, a: Array, b: Array, x: Array, y: Array) -> pa.RecordBatch:
    columns = [
        pa.array([what] * len(a), pa.string()),
        *(pa.array(np.asarray(column, dtype=np.int32)) for column in (a, b)),
        *(pa.array(np.asarray(column, dtype=np.int64)) for column in (x, y)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["what", "a", "b", "x", "y"])


def estimate_schema(order: int) -> str:
    """What estimate_orders gives: n-grams, each with its p or its back-off weight."""
    return rows_schema(order, "p double, weight double")


def estimate_orders(
    order: int,
    bos: int,
    smoother: Smoother,
    unigrams: FloatArray,
    spread: Spread,
    cutoffs: list[int] | None,
    *,
    divergence: bool = False,
) -> Task:
    """The n-grams of orders 2 to n of a partition with their p, and their contexts with their back-off weights.

    Rows of estimate_schema: an n-gram has one row with p and, where it is a context, one with a weight. smoother: with
    its parameters estimated. unigrams: p `[V]`. cutoffs: n-grams with that count or less have no row with p, and their
    mass goes to the shorter context. divergence: give rows of prune.divergence_schema instead, for entropy pruning.
    """

    def rows(made: list[Level]) -> Batches:
        lower = np.empty(0)
        for level in reversed(made):
            shorter = unigrams[level.words[1]] if level.shorter is None else lower[level.shorter]
            lower, weight = estimate_level(level, smoother, spread, shorter, cutoffs, bos, order)
            mine = estimated_here(level, spread.words)
            yield from estimate_rows(level, lower, shorter, weight, mine, cutoffs, order, divergence=divergence)

    return of_levels(order, bos, rows)


def estimate_level(
    level: Level,
    smoother: Smoother,
    spread: Spread | None,
    shorter: FloatArray,
    cutoffs: list[int] | None,
    bos: int,
    order: int,
) -> tuple[FloatArray, FloatArray]:
    """p `[N]` of a level's n-grams, and the weight of each of its C contexts `[C]`.

    shorter: p after the shorter context `[N]`. spread: has p of 2-grams in several partitions.
    """
    a = adjusted(level, smoother.counting, bos, level.order == order)
    kept = above_cutoff(level, cutoffs)
    p, weight = estimate_contexts(smoother, level.order, a, level.begins, shorter, kept, bos)
    if level.order == 2 and spread is not None and len(spread.keys):
        known = spread.words[level.words[0]]
        p[known] = spread.p[np.searchsorted(spread.keys, pair_keys(level, bos)[known])]
    return p, weight


def pair_keys(level: Level, bos: int) -> Array:
    """The keys of the 2-grams of a level, as Spread has them, uint64 `[N]`."""
    return (level.words[0].astype(np.uint64) << np.uint64(width_of(bos))) | level.words[1].astype(np.uint64)


def estimate_rows(
    level: Level,
    p: FloatArray,
    shorter: FloatArray,
    weight: FloatArray,
    mine: Array,
    cutoffs: list[int] | None,
    order: int,
    *,
    divergence: bool,
) -> Batches:
    """Rows of estimate_schema: those of a level's n-grams that are `mine` and stay, and those of their contexts; or, as
    `divergence` says, rows of prune.divergence_schema of these n-grams.
    """
    kept, first = above_cutoff(level, cutoffs), level.begins[:-1]
    stays = mine if kept is None else mine & kept
    if divergence:
        yield from divergence_rows(level, p, shorter, stays, order)
        return
    yield from value_rows(level.words, p, stays, order, "p")
    yield from value_rows([column[first] for column in level.words[:-1]], weight, mine[first], order, "weight")


def value_rows(words: list[Array], values: FloatArray, kept: Array, order: int, name: str) -> Batches:
    """Rows of estimate_schema with p or weight, whichever `name` says, of those n-grams that are kept."""
    at = np.flatnonzero(kept)
    for first in range(0, len(at), ROWS_AT_ONCE):
        here = at[first : first + ROWS_AT_ONCE]
        columns = dict.fromkeys(("p", "weight"), pa.nulls(len(here), pa.float64())) | {name: pa.array(values[here])}
        yield rows_of(len(words), [column[here] for column in words], order, columns)
