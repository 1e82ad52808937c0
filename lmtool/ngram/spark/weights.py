"""Back-off weights of what entropy pruning has kept, on Spark's workers: pruning.entropy.renormalised, to the bit.

A partition has the n-grams whose word before the last is one of some words. p(w|h') may be of a shorter n-gram that is
gone, whose p is then the next shorter one's times a weight: so all last words of what is there are looked at, whether
they are n-grams of the model or not. The 2-grams after words that are spread over several partitions are the driver's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.ngram.pruning.entropy import FloatArray32, new_weights
from lmtool.ngram.spark.levels import by_context, changes
from lmtool.ngram.spark.prune import stored
from lmtool.ngram.spark.shares import value_rows
from lmtool.ngram.spark.tasks import Batches, Task, held, ngram_columns
from lmtool.ngram.tables.packed import width_of
from lmtool.ngram.tables.trie import ngram_keys
from lmtool.system.arrays import FloatArray, IntArray

Array = npt.NDArray[Any]
PAIRS = "w1 int, w2 int, p double"


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """The 2-grams that stay after words that are spread over several partitions.

    words: bool `[V]`, which words these are. keys: of the 2-grams, as ngram_keys has them, ascending uint64 `[S]`;
    log_prob: theirs, float32 `[S]`. weights: back-off weights of these words, `[V]`; 1 of others.
    """

    words: npt.NDArray[np.bool_]
    keys: Array
    log_prob: FloatArray32
    weights: FloatArray


def pairs_after(is_spread: npt.NDArray[np.bool_]) -> Task:
    """Of rows of 2-grams, those whose first word is_spread, bool `[V]`."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            yield batch.filter(pa.array(is_spread[batch.column("w1").to_numpy()]))

    return task


def weigh_pairs(
    batches: Iterable[pa.RecordBatch], is_spread: npt.NDArray[np.bool_], log_unigrams: FloatArray
) -> KeptPairs:
    """The weights of words whose 2-grams are spread over several partitions.

    batches: rows of PAIRS, all 2-grams that stay after these words. log_unigrams: as in `keep`.
    """
    some: list[list[Array]] = [[np.empty(0, dtype=np.int32)] * 2 + [np.empty(0)]]
    some += [[batch.column(name).to_numpy() for name in ("w1", "w2", "p")] for batch in batches]
    first, second, p = (np.concatenate(columns) for columns in zip(*some, strict=True))
    place = np.lexsort((second, first))
    first, second, log_prob = first[place], second[place], stored(p[place])
    weights = np.ones(len(log_unigrams))
    words, context = np.unique(first, return_inverse=True)
    weights[words] = new_weights(log_prob, log_unigrams[second], context, len(words))
    return KeptPairs(is_spread, ngram_keys(first, second, width_of(len(weights) - 1)), log_prob, weights)


@dataclass(frozen=True, slots=True)
class _Suffixes:
    """The n-grams of order k that stay, and the last k words of longer ones that do, sorted by context.

    words: k arrays `[N]`. p: `[N]`, not a number where it does not stay. context: the number of each one's context,
    int64 `[N]`. longer: the last k words of each n-gram of the order above, among these.
    """

    words: list[Array]
    p: FloatArray
    context: IntArray
    longer: IntArray


def weigh(order: int, log_unigrams: FloatArray, pairs: KeptPairs) -> Task:
    """Rows of shares.estimate_schema from rows of prune.kept_schema without its key: n-grams as they are, with the new
    weights of their contexts. log_unigrams: as in `keep`; no n-gram ends in `<s>`.
    """

    def task(batches: Batches) -> Batches:
        for p, k, *words in held(batches, "p", "k", *ngram_columns(order)):
            made = _suffixes(k, words, p, width_of(len(log_unigrams) - 1))
            log_lower = log_unigrams[made[-1].words[-1]]
            for level in reversed(made):
                stays, log_prob, context = ~np.isnan(level.p), stored(level.p), level.context
                first = np.flatnonzero(changes([context]))
                weight = new_weights(log_prob[stays], log_lower[stays], context[stays], len(first))
                followed = np.bincount(context[stays], minlength=len(first)) > 0
                if len(level.words) == 2:
                    word = level.words[0][first]
                    weight = np.where(pairs.words[word], pairs.weights[word], weight)
                    log_prob = _with_pairs(level.words, log_prob, pairs, width_of(len(log_unigrams) - 1))
                yield from value_rows(level.words, level.p, stays, order, "p")
                contexts = [column[first] for column in level.words[:-1]]
                yield from value_rows(contexts, weight, followed, order, "weight")
                backed_off = log_lower + stored(weight).astype(np.float64)[context]
                log_p = np.where(np.isnan(log_prob), backed_off, log_prob.astype(np.float64))
                log_lower = log_p[level.longer]

    return task


def _with_pairs(words: list[Array], log_prob: FloatArray32, pairs: KeptPairs, width: int) -> FloatArray32:
    """log p of the 2-grams of a partition, with those of `pairs` where they stay."""
    at = np.flatnonzero(pairs.words[words[0]])
    keys = ngram_keys(words[0][at], words[1][at], width)
    place = np.minimum(np.searchsorted(pairs.keys, keys), len(pairs.keys) - 1)
    log_prob = log_prob.copy()
    if len(pairs.keys):
        log_prob[at] = np.where(pairs.keys[place] == keys, pairs.log_prob[place], np.nan)
    return log_prob


def _suffixes(k: Array, words: list[Array], p: FloatArray, width: int) -> list[_Suffixes]:
    """The n-grams of orders n to 2. k: the order of each row `[R]`; words: n arrays `[R]`; width: bits of a word."""
    made: list[_Suffixes] = []
    for m in range(len(words), 1, -1):
        rows = np.flatnonzero(k == m)
        suffixes = made[-1].words[1:] if made else [words[0][:0]] * m
        some = [np.concatenate([column[rows], suffix]) for column, suffix in zip(words, suffixes, strict=False)]
        place = by_context(some, width)
        some = [column[place] for column in some]
        first = changes(some)  # of equal ones, that which stays comes first
        number = np.empty(len(place), dtype=np.int64)
        number[place] = np.cumsum(first) - 1
        known = np.concatenate([p[rows], np.full(len(suffixes[0]), np.nan)])[place[first]]
        some = [column[first] for column in some]
        made.append(_Suffixes(some, known, np.cumsum(changes(some[:-1])) - 1, number[len(rows) :]))
    return made
