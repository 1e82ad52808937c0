"""Entropy pruning on Spark's workers: lmtool.ngram.pruning.entropy on the n-grams of a partition, equal to the bit.

What removing hw changes, except for p(h), needs only the n-grams of its context: _shares.py computes it with p. For
p(h), and so that contexts of what stays stay, `keep` gets n-grams with the same first two words together. For the new
back-off weights, `weigh` gets those with the same word before the last together: p(w|h') is then in the partition, too,
except for 2-grams of spread contexts (see _shares.py), which the driver sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.errors import UserError
from lmtool.ngram.counting.radix_sort import sort_keys
from lmtool.ngram.pruning.entropy import log_marginals, marked, relative_changes, renormalised
from lmtool.ngram.spark._levels import changes
from lmtool.ngram.spark._shares import stored
from lmtool.ngram.spark._tasks import Batches, Task, held, keys_of, ngram_columns, row_batches, rows_schema
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.trie import Trie, TrieBuilder, ngram_keys
from lmtool.system.arrays import FloatArray, IntArray

Array = npt.NDArray[Any]
PAIRS = "w1 int, w2 int, p double"


def kept_schema(order: int) -> str:
    """Return the schema of `keep`: n-grams with p, and the key that brings those of a context together."""
    return rows_schema(order, "p double, key long")


def keep(order: int, threshold: float, unigrams: FloatArray, eos: int | None, is_spread: npt.NDArray[np.bool_]) -> Task:
    """Return a task that keeps the n-grams whose removal changes perplexity by `threshold` or more, and their contexts:
    rows of kept_schema, from rows of divergence_schema, of which those with the same first two words are together.

    unigrams, is_spread: as of Estimation. eos: the id of `</s>`.
    """

    def task(batches: Batches) -> Batches:
        for p, divergence, k, *words in held(batches, "p", "divergence", "k", *ngram_columns(order)):
            trie, rows = _trie_of(k, words, len(unigrams))
            log_h = log_marginals(_table(trie, unigrams, p[rows]), eos)
            found = []
            for m in range(order, 1, -1):
                context = log_h[trie.first(m - 1) : trie.first(m)][trie.contexts(m)]
                found.append((m, relative_changes(divergence[_of_order(trie, rows, m)], context)))
            stays = rows[marked(trie, found, threshold).mask[len(unigrams) :]]
            for m in range(2, order + 1):
                some, key = words[:m], keys_of(words[:m], len(unigrams) - 1, is_spread)
                yield from row_batches(stays[k[stays] == m], some, order, p=p, key=key)

    return task


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """The 2-grams of spread contexts that stay: their words, two arrays `[S]`, and p `[S]`."""

    words: list[Array]
    p: FloatArray

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> KeptPairs:
        """Collect the pairs from rows of PAIRS."""
        some: list[list[Array]] = [[np.empty(0, dtype=np.int32)] * 2 + [np.empty(0)]]
        some += [[batch.column(name).to_numpy() for name in ("w1", "w2", "p")] for batch in batches]
        *words, p = (np.concatenate(columns) for columns in zip(*some, strict=True))
        return cls(words, p)


def pairs_after(is_spread: npt.NDArray[np.bool_]) -> Task:
    """Return a task that selects, from rows of 2-grams, those whose first word is_spread, bool `[V]`."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            yield batch.filter(pa.array(is_spread[batch.column("w1").to_numpy()]))

    return task


def weigh(order: int, unigrams: FloatArray, pairs: KeptPairs) -> Task:
    """Return a task that gives the contexts of n-grams new back-off weights: rows of estimate_schema, from rows of
    kept_schema without its key. unigrams: as of Estimation.
    """

    def task(batches: Batches) -> Batches:
        for p, k, *words in held(batches, "p", "k", *ngram_columns(order)):
            fill = np.full(len(pairs.p), -1)
            columns = [np.concatenate(both) for both in zip(words, [*pairs.words, *[fill] * (order - 2)], strict=True)]
            every_p, every_k = np.append(p, pairs.p), np.append(k, np.full(len(pairs.p), 2))
            trie, rows = _trie_of(every_k, columns, len(unigrams), fill_in=True)
            table = _table(trie, unigrams, np.where(rows >= 0, every_p[rows], np.nan))
            log_backoff = renormalised(table).log_backoffs(0, trie.first(order))
            weights = np.exp(log_backoff.astype(np.float64))
            for m in range(2, order + 1):
                here = _of_order(trie, rows, m)
                mine = (here >= 0) & (here < len(p))
                yield from row_batches(here[mine], words[:m], order, p=p, weight=None)
                contexts = np.unique(trie.contexts(m)[mine])
                names = list(np.ascontiguousarray(trie.ngrams_at(m - 1, contexts).T))
                weight = weights[trie.first(m - 1) + contexts]
                yield from row_batches(np.arange(len(contexts)), names, order, p=None, weight=weight)

    return task


def _trie_of(k: Array, words: list[Array], vocabulary_size: int, *, fill_in: bool = False) -> tuple[Trie, IntArray]:
    """Return the trie of n-grams of orders 2 to n, and the row of each of its nodes from order 2 on, `[nodes]`.

    k: the order of each row `[R]`. words: n arrays `[R]`. fill_in: whether contexts that have no row become nodes, with
    row -1; without it they raise UserError. Of equal n-grams the first row counts.
    """
    order = len(words)
    grams: list[Array] = []
    rows: list[IntArray] = []
    for m in range(order, 1, -1):
        here = np.flatnonzero(k == m)
        gram = np.stack([column[here] for column in words[:m]], axis=1).astype(np.int64)
        filled = np.unique(grams[-1][:, :-1], axis=0) if fill_in and grams else gram[:0]
        grams.append(np.concatenate([gram, filled]))
        rows.append(np.concatenate([here, np.full(len(filled), -1)]))
    builder = TrieBuilder(vocabulary_size)
    found: list[IntArray] = []
    for gram, row in zip(reversed(grams), reversed(rows), strict=True):
        trie = builder.finish()
        context = trie.find(np.ascontiguousarray(gram[:, :-1])) - trie.first(trie.order)
        if (context < 0).any():
            raise UserError("an n-gram came without its context: delete counts.folder and run again")
        keys = ngram_keys(context, gram[:, -1], builder.word_width)
        keys, place = sort_keys(keys, np.arange(len(keys), dtype=np.uint32), builder.key_width)
        first = changes([keys])
        builder.add(keys[first])
        found.append(row[place[first]])
    return builder.finish(), np.concatenate(found)


def _of_order(trie: Trie, rows: IntArray, k: int) -> IntArray:
    """Return the rows of the nodes of order k."""
    return rows[trie.first(k) - trie.vocabulary_size : trie.first(k + 1) - trie.vocabulary_size]


def _table(trie: Trie, unigrams: FloatArray, p: FloatArray) -> BackoffTable:
    """Return a table without back-off weights. p: of the nodes from order 2 on."""
    log_prob = np.concatenate([stored(unigrams), stored(p)])
    log_backoff = np.zeros(trie.first(trie.order), dtype=np.float32)
    return BackoffTable(trie, log_prob, log_backoff, len(unigrams) - 1, -np.inf, suffix_closed=False)
