"""Entropy pruning on Spark's workers, with the formulas of pruning.entropy, so that models are equal to the bit.

What removing hw changes, but for p(h), needs only the n-grams of its context: shares.py says it with p. For p(h), and
so that contexts of what stays stay, an n-gram must meet its first words: `keep` has the n-grams that share the first
two together. For the new back-off weights (weights.py) it must meet its last words again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.errors import UserError
from lmtool.ngram.counting.radix_sort import sort_keys
from lmtool.ngram.pruning.entropy import FloatArray32, divergences, relative_changes
from lmtool.ngram.spark.levels import Level, changes
from lmtool.ngram.spark.tasks import ROWS_AT_ONCE, Batches, Task, held, keys_of, ngram_columns, rows_of, rows_schema
from lmtool.ngram.tables.backoff import log
from lmtool.ngram.tables.packed import width_of
from lmtool.ngram.tables.trie import ngram_keys
from lmtool.system.arrays import FloatArray, IntArray

Array = npt.NDArray[Any]


def stored(p: FloatArray) -> FloatArray32:
    """log p as the table stores it, float32."""
    log_prob: FloatArray32 = log(p).astype(np.float32)
    return log_prob


def unigrams_as_contexts(p: FloatArray, eos: int | None) -> FloatArray:
    """log p(h) `[V]` of single words from their p, as the table stores it; `<s>`, the last, has that of `</s>`."""
    log_unigrams = stored(p).astype(np.float64)
    log_unigrams[-1] = log_unigrams[eos] if eos is not None else -np.inf
    return log_unigrams


def divergence_schema(order: int) -> str:
    """What estimates are before entropy pruning: n-grams with p and what their removal changes."""
    return rows_schema(order, "p double, divergence double")


def divergence_rows(level: Level, p: FloatArray, lower: FloatArray, mine: Array, order: int) -> Batches:
    """Rows of divergence_schema of those n-grams of a level that are `mine`, bool `[N]`: of whole contexts, but for
    what was cut off. p, lower: p(w|h) and p(w|h') `[N]`.
    """
    at = np.flatnonzero(mine)
    context = np.cumsum(changes([level.context[at]])) - 1
    log_lower = stored(lower[at]).astype(np.float64)
    change = divergences(stored(p[at]), log_lower, context, int(context[-1]) + 1 if len(at) else 0)
    for first in range(0, len(at), ROWS_AT_ONCE):
        here = slice(first, first + ROWS_AT_ONCE)
        columns = {"p": pa.array(p[at[here]]), "divergence": pa.array(change[here])}
        yield rows_of(level.order, [column[at[here]] for column in level.words], order, columns)


def kept_schema(order: int) -> str:
    """What `keep` gives: n-grams with p, and the key that brings those of a context together."""
    return rows_schema(order, "p double, key long")


@dataclass(frozen=True, slots=True)
class _Prefixes:
    """The n-grams of an order with the same first two words, sorted: their rows, keys, and contexts in the order below,
    each `[N]`; log_h and log_hw: log p(h) and log p(hw).
    """

    rows: IntArray
    keys: Array
    context: IntArray
    log_h: FloatArray
    log_hw: FloatArray


def keep(order: int, threshold: float, log_unigrams: FloatArray, is_spread: npt.NDArray[np.bool_]) -> Task:
    """The n-grams whose removal changes perplexity by `threshold` or more, and the contexts of what stays: rows of
    kept_schema, from rows of divergence_schema, of which those with the same first two words are together.

    log_unigrams: as unigrams_as_contexts has them. is_spread: as tasks.keys_of has it.
    """

    def task(batches: Batches) -> Batches:
        for p, divergence, k, *words in held(batches, "p", "divergence", "k", *ngram_columns(order)):
            found = _prefixes(k, words, p, log_unigrams)
            stays = np.zeros(len(p), dtype=bool)
            contexts = np.empty(0, dtype=np.int64)  # of what stays of the order above
            for level in reversed(found):
                worth = relative_changes(divergence[level.rows], level.log_h) >= threshold
                worth[contexts] = True
                stays[level.rows] = worth
                contexts = level.context[worth]
            for m in range(2, order + 1):
                at = np.flatnonzero(stays & (k == m))
                for first in range(0, len(at), ROWS_AT_ONCE):
                    here = at[first : first + ROWS_AT_ONCE]
                    some = [column[here] for column in words[:m]]
                    key = keys_of(some, len(log_unigrams) - 1, is_spread)
                    yield rows_of(m, some, order, {"p": pa.array(p[here]), "key": pa.array(key)})

    return task


def _prefixes(k: Array, words: list[Array], p: FloatArray, log_unigrams: FloatArray) -> list[_Prefixes]:
    """The n-grams of orders 2 to n. k: the order of each row `[R]`; words: n arrays `[R]`."""
    width = width_of(len(log_unigrams) - 1)
    found: list[_Prefixes] = []
    log_marginals = log_unigrams
    for m in range(2, len(words) + 1):
        rows = np.flatnonzero(k == m)
        context = words[0][rows].astype(np.int64)
        for column, shorter in zip(words[1 : m - 1], found, strict=True):
            context = _places(shorter.keys, ngram_keys(context, column[rows], width))
        keys, place = sort_keys(
            ngram_keys(context, words[m - 1][rows], width),
            np.arange(len(rows), dtype=np.uint32),
            width + width_of(max(len(log_marginals) - 1, 0)),
        )
        rows, context = rows[place], context[place]
        log_h = log_marginals[context]
        log_marginals = stored(p[rows]).astype(np.float64) + log_h
        found.append(_Prefixes(rows, keys, context, log_h, log_marginals))
    return found


def _places(keys: Array, wanted: Array) -> IntArray:
    """Where each of the wanted ones is among ascending keys. Raises UserError where one is not."""
    at = np.searchsorted(keys, wanted)
    if len(wanted) and (at.max() >= len(keys) or (keys[at] != wanted).any()):
        raise UserError("an n-gram came without its context: delete counts.folder and run again")
    return at
