"""Step 3 on Spark's workers: the sums that the driver needs to fit a smoother, and the estimates.

The formulas are those of lmtool.ngram.estimation, on the same numbers in the same order, so that the results are equal
to the bit. A context whose last word is so frequent that its n-grams lie in several partitions is called spread: the
driver adds up its 2-grams, estimates them and sends them to the workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.ngram.estimation.formulas import estimate_contexts
from lmtool.ngram.pruning.entropy import divergences
from lmtool.ngram.smoothers.base import MAX_R, Counting, Smoother
from lmtool.ngram.spark._levels import Level, changes
from lmtool.ngram.spark._tasks import ROWS_PER_BATCH, Batches, Task, newest_of, of_levels, row_batches, rows_schema
from lmtool.ngram.tables.backoff import log
from lmtool.ngram.tables.packed import width_of
from lmtool.ngram.tables.trie import ngram_keys
from lmtool.system.arrays import FloatArray, IntArray

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]

# A row of `sums`: its kind, and two numbers that identify it; x and y add up over the partitions.
SUMS = "what string, a int, b int, x long, y long"
HISTOGRAM, PRECEDING, SPREAD = "n-grams of an adjusted count", "2-grams before a word", "2-gram in several partitions"
NEWEST, TOKENS = "newest", "tokens"


def adjusted(level: Level, counting: Counting, bos: int, highest: bool) -> IntArray:
    """Return a `[N]` of a level's n-grams, as estimation.adjusted_counts defines it."""
    if highest or counting is Counting.occurrences:
        return level.count
    below = level.preceding if counting is Counting.continuations else 0
    return np.where(level.words[0] == bos, level.count, below)


def histogram(a: IntArray) -> IntArray:
    """Return how many have each of 0 to MAX_R, and how many have more, int64 `[MAX_R + 2]`."""
    return np.bincount(np.minimum(a, MAX_R + 1), minlength=MAX_R + 2)


def stored(p: FloatArray) -> npt.NDArray[np.float32]:
    """Return log p as the table stores it, float32."""
    log_prob: npt.NDArray[np.float32] = log(p).astype(np.float32)
    return log_prob


def sums(order: int, bos: int, ranks: IntArray, is_spread: BoolArray, counting: Counting) -> Task:
    """Return a task that adds up, over a partition of count_in_pieces, what the driver needs: rows of SUMS.

    ranks: as of kenlm_ranks. is_spread: bool `[V]`, the words whose 2-grams lie in several partitions.

    HISTOGRAM: k, r, the number of n-grams of order k with a = r. PRECEDING: a word, and the number of 2-grams that end
    in it. SPREAD: the words of a 2-gram, its count, and the number of words before it. NEWEST and the words of this
    partition's candidate for the n-gram that KenLM sorts last: k, and a and the count of its last k words. TOKENS: the
    number of tokens.
    """

    def rows(made: list[Level]) -> Batches:
        for level in made:
            a = adjusted(level, counting, bos, level.order == order)
            found = histogram(a[estimated_here(level, is_spread)])
            yield from _sums(HISTOGRAM, np.full(len(found), level.order), np.arange(len(found)), found)
        pairs = made[-1]
        spread = is_spread[pairs.words[0]]
        first, second = (column[spread] for column in pairs.words)
        yield from _sums(SPREAD, first, second, pairs.count[spread], pairs.preceding[spread])
        yield from _sums(TOKENS, np.zeros(1), np.zeros(1), pairs.count.sum(keepdims=True))
        preceding = np.bincount(pairs.words[1][~spread])
        seen = np.flatnonzero(preceding)
        yield from _sums(PRECEDING, seen, seen * 0, preceding[seen])
        yield from _newest_rows(made, ranks, counting, bos)

    return of_levels(order, bos, rows)


def estimated_here(level: Level, is_spread: BoolArray) -> BoolArray:
    """Return which n-grams of a partition's level it estimates itself, bool `[N]`."""
    return level.real if level.order > 2 else ~is_spread[level.words[0]]


def _newest_rows(made: list[Level], ranks: IntArray, counting: Counting, bos: int) -> Batches:
    newest = newest_of(made[0].words, ranks)
    if newest is None:
        return
    name = f"{NEWEST} {' '.join(map(str, newest))}"
    for level in made[1:]:  # below the highest order
        k = level.order
        same = [column == word for column, word in zip(level.words, newest[-k:], strict=True)]
        at = np.flatnonzero(np.logical_and.reduce([*same, level.real]))
        a = adjusted(level, counting, bos, False)
        yield from _sums(name, np.full(len(at), k), at * 0, a[at], level.count[at])
    yield from _sums(name, *np.zeros((3, 1), dtype=np.int64))


def _sums(what: str, a: Array, b: Array, x: Array, y: Array | None = None) -> Batches:
    """Yield rows of SUMS; y: 0 if None."""
    for first in range(0, len(a), ROWS_PER_BATCH):
        some = [column[first : first + ROWS_PER_BATCH] for column in (a, b, x, x * 0 if y is None else y)]
        types = (np.int32, np.int32, np.int64, np.int64)
        columns = [pa.array(np.asarray(column, dtype=dtype)) for column, dtype in zip(some, types, strict=True)]
        columns.insert(0, pa.array([what] * len(some[0]), pa.string()))
        yield pa.RecordBatch.from_arrays(columns, names=["what", "a", "b", "x", "y"])


def estimate_schema(order: int) -> str:
    """Return the schema of estimates: n-grams, each with its p or its back-off weight."""
    return rows_schema(order, "p double, weight double")


def divergence_schema(order: int) -> str:
    """Return the schema of estimates before entropy pruning: n-grams with p and the change that their removal makes."""
    return rows_schema(order, "p double, divergence double")


@dataclass(frozen=True, slots=True)
class Estimation:
    """A model to be estimated in partitions: what the workers need of it.

    order: n. smoother: with its parameters estimated. cutoffs: one per order, or None; n-grams with that count or less
    have no row with p, and their mass goes to the shorter context. prunes: whether entropy pruning follows. unigrams: p
    `[V]`, the last of `<s>`. unseen: p of each type outside the vocabulary. is_spread: bool `[V]`, the words whose
    2-grams lie in several partitions. spread_keys: of these 2-grams, as ngram_keys returns them, ascending uint64
    `[S]`; spread_p: their p `[S]`.
    """

    order: int
    smoother: Smoother
    cutoffs: list[int] | None
    prunes: bool
    unigrams: FloatArray
    unseen: float
    is_spread: BoolArray
    spread_keys: Array
    spread_p: FloatArray

    @property
    def bos(self) -> int:
        """The id of `<s>`."""
        return len(self.unigrams) - 1

    @property
    def schema(self) -> str:
        """The schema of `rows`."""
        return divergence_schema(self.order) if self.prunes else estimate_schema(self.order)

    def task(self) -> Task:
        """Return a task for the n-grams of orders 2 to n of a partition, with their p, and their contexts with their
        back-off weights, or, before entropy pruning, with their divergences: rows of `schema`.

        In estimate_schema an n-gram has one row with p and, if it is a context, one with a weight.
        """

        def rows(made: list[Level]) -> Batches:
            lower = np.empty(0)
            for level in reversed(made):
                shorter = self.unigrams[level.words[1]] if level.shorter is None else lower[level.shorter]
                lower, weight = self.estimate(level, shorter)
                yield from self.rows(level, lower, shorter, weight, estimated_here(level, self.is_spread))

        return of_levels(self.order, self.bos, rows)

    def estimate(self, level: Level, shorter: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p `[N]` of a level's n-grams and the weights `[C]` of its contexts. shorter: p(w|h') `[N]`."""
        a = adjusted(level, self.smoother.counting, self.bos, level.order == self.order)
        kept = self._above_cutoff(level)
        p, weight = estimate_contexts(self.smoother, level.order, a, level.begins, shorter, kept, self.bos)
        if level.order == 2 and len(self.spread_keys):
            known = self.is_spread[level.words[0]]
            p[known] = self.spread_p[np.searchsorted(self.spread_keys, pair_keys(level, self.bos)[known])]
        return p, weight

    def rows(self, level: Level, p: FloatArray, shorter: FloatArray, weight: FloatArray, mine: BoolArray) -> Batches:
        """Yield rows of `schema` for those n-grams of a level that are `mine` and above the cut-off.

        p, shorter: p(w|h) and p(w|h') `[N]`. weight: of the contexts, `[C]`. mine: bool `[N]`, of whole contexts.
        """
        kept, first = self._above_cutoff(level), level.begins[:-1]
        at = np.flatnonzero(mine if kept is None else mine & kept)
        if self.prunes:
            context = np.cumsum(changes([level.context[at]])) - 1
            log_lower = stored(shorter[at]).astype(np.float64)
            change = np.empty(len(p))
            change[at] = divergences(stored(p[at]), log_lower, context, int(context[-1]) + 1 if len(at) else 0)
            yield from row_batches(at, level.words, self.order, p=p, divergence=change)
            return
        contexts = [column[first] for column in level.words[:-1]]
        yield from row_batches(at, level.words, self.order, p=p, weight=None)
        yield from row_batches(np.flatnonzero(mine[first]), contexts, self.order, p=None, weight=weight)

    def _above_cutoff(self, level: Level) -> BoolArray | None:
        return level.count > self.cutoffs[level.order - 1] if self.cutoffs and any(self.cutoffs) else None


def pair_keys(level: Level, bos: int) -> Array:
    """Return the keys of the 2-grams of a level, uint64 `[N]`."""
    return ngram_keys(level.words[0], level.words[1], width_of(bos))
