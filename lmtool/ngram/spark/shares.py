"""Step 3 on Spark's workers: what the driver must know of all partitions to fit a smoother, and the estimates.

The formulas are those of lmtool.ngram.estimate, on the same numbers in the same order, so that the results are equal to
the bit. A context whose last word is so frequent that its n-grams lie in several partitions has its 2-grams added up by
the driver, which estimates them and tells the workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.estimate import estimate_contexts
from lmtool.ngram.packed import width_of
from lmtool.ngram.smoothers.base import LARGEST, Counting, Smoother
from lmtool.ngram.spark.levels import Level, levels
from lmtool.ngram.spark.tasks import ROWS_AT_ONCE, Batches, Task, newest_of, ngram_columns, read_partition
from lmtool.system import parallel

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
    """a `[N]` of a level's n-grams, as estimate.adjusted_counts has it."""
    if highest or counting is Counting.occurrences:
        return level.count
    below = level.preceding if counting is Counting.continuations else 0
    return np.where(level.words[0] == bos, level.count, below)


def histogram(a: IntArray) -> IntArray:
    """How many have each of 0 to LARGEST, and how many have more, int64 `[LARGEST + 2]`."""
    return np.bincount(np.minimum(a, LARGEST + 1), minlength=LARGEST + 2)


def sums(order: int, bos: int, numbers: IntArray, is_spread: npt.NDArray[np.bool_], counting: Counting) -> Task:
    """What the driver adds up over the partitions of count_in_pieces: rows of SUMS.

    numbers: as tasks.count_orders has them. is_spread: bool `[V]`, the words whose 2-grams lie in several partitions.

    HISTOGRAM: k, r, the number of n-grams of order k with a = r. PRECEDING: a word, and of how many 2-grams it is the
    last. SPREAD: the words of a 2-gram, its count, and the number of words before it. NEWEST and the words of this
    partition's candidate for the n-gram that KenLM comes to last: k, and a and the count of its last k words. TOKENS:
    how many there are.
    """

    def task(batches: Batches) -> Batches:
        parallel.use(1)
        words, count = read_partition(batches, order)
        if not len(count):
            return
        made = levels(words, count, bos)
        rows: list[Any] = []
        for level in made:
            mine = level.real if level.order > 2 else ~is_spread[level.words[0]]
            a = adjusted(level, counting, bos, level.order == order)
            found = histogram(a[mine])
            rows.append((HISTOGRAM, np.full(len(found), level.order), np.arange(len(found)), found, found * 0))
        pairs = made[-1]
        spread = is_spread[pairs.words[0]]
        some = [column[spread] for column in pairs.words]
        rows.append((SPREAD, *some, pairs.count[spread], pairs.preceding[spread]))
        preceding = np.bincount(pairs.words[1][~spread])
        seen = np.flatnonzero(preceding)
        rows.append((TOKENS, np.zeros(1), np.zeros(1), pairs.count.sum(keepdims=True), np.zeros(1)))
        rows.append((PRECEDING, seen, seen * 0, preceding[seen], seen * 0))
        for kind, a, b, x, y in rows:
            for at in range(0, len(a), ROWS_AT_ONCE):
                here = slice(at, at + ROWS_AT_ONCE)
                yield _sums_batch(kind, a[here], b[here], x[here], y[here])
        yield from _newest_rows(made, numbers, counting, bos, order)

    return task


def _newest_rows(made: list[Level], numbers: IntArray, counting: Counting, bos: int, order: int) -> Batches:
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
    """What estimate_orders gives: an n-gram (k, its words, -1 after its last), and its p or its back-off weight."""
    return "k int, " + ", ".join(f"{name} int" for name in ngram_columns(order)) + ", p double, weight double"


def estimate_orders(
    order: int, bos: int, smoother: Smoother, unigrams: FloatArray, spread: Spread, cutoffs: list[int] | None
) -> Task:
    """The n-grams of orders 2 to n of a partition with their p, and their contexts with their back-off weights.

    Rows of estimate_schema: an n-gram has one row with p and, where it is a context, one with a weight. smoother: with
    its parameters estimated. unigrams: p `[V]`. cutoffs: n-grams with that count or less have no row with p, and their
    mass goes to the shorter context.
    """

    def task(batches: Batches) -> Batches:
        parallel.use(1)
        words, count = read_partition(batches, order)
        if not len(count):
            return
        lower = np.empty(0)
        for level in reversed(levels(words, count, bos)):
            p, weight, first = estimate_level(level, smoother, unigrams, spread, lower, cutoffs, bos, order)
            lower = p
            mine = level.real if level.order > 2 else ~spread.words[level.words[0]]
            kept = mine if not cutoffs else mine & (level.count > cutoffs[level.order - 1])
            yield from estimate_batches(level.words, p, kept, order, "p")
            is_mine = mine[first]
            contexts = [column[first] for column in level.words[:-1]]
            yield from estimate_batches(contexts, weight, is_mine, order, "weight")

    return task


def estimate_level(
    level: Level,
    smoother: Smoother,
    unigrams: FloatArray,
    spread: Spread | None,
    lower: FloatArray,
    cutoffs: list[int] | None,
    bos: int,
    order: int,
) -> tuple[FloatArray, FloatArray, IntArray]:
    """p `[N]` of a level's n-grams, and of each of its C contexts the weight `[C]` and the first n-gram `[C]`.

    lower: p of the level below; for order 2 it is that of the unigrams. spread: has p of 2-grams in several partitions.
    """
    begins = level.begins
    shorter = unigrams[level.words[1]] if level.shorter is None else lower[level.shorter]
    a = adjusted(level, smoother.counting, bos, level.order == order)
    kept = None if not cutoffs or not any(cutoffs) else level.count > cutoffs[level.order - 1]
    p, weight = estimate_contexts(smoother, level.order, a, begins, shorter, kept, len(unigrams) - 1)
    if level.order == 2 and spread is not None and len(spread.keys):
        known = spread.words[level.words[0]]
        p[known] = spread.p[np.searchsorted(spread.keys, pair_keys(level, bos)[known])]
    return p, weight, begins[:-1]


def pair_keys(level: Level, bos: int) -> Array:
    """The keys of the 2-grams of a level, as Spread has them, uint64 `[N]`."""
    return (level.words[0].astype(np.uint64) << np.uint64(width_of(bos))) | level.words[1].astype(np.uint64)


def estimate_batches(words: list[Array], values: FloatArray, kept: Array, order: int, name: str) -> Batches:
    """Rows of estimate_schema with p or weight, whichever `name` says, of those n-grams that are kept."""
    k, at = len(words), np.flatnonzero(kept)
    for first in range(0, len(at), ROWS_AT_ONCE):
        here = at[first : first + ROWS_AT_ONCE]
        columns = [pa.array(np.full(len(here), k, np.int32))]
        columns += [pa.array(column[here].astype(np.int32)) for column in words]
        columns += [pa.array(np.full(len(here), -1, np.int32))] * (order - k)
        given, none = pa.array(values[here]), pa.nulls(len(here), pa.float64())
        columns += [given, none] if name == "p" else [none, given]
        yield pa.RecordBatch.from_arrays(columns, names=["k", *ngram_columns(order), "p", "weight"])
