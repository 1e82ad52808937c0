"""Step 4: build Counts or the arrays of a table from rows that Spark has sorted, equal to the ones built here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, newest_ngram
from lmtool.ngram.spark._levels import changes
from lmtool.ngram.spark._tasks import ngram_columns
from lmtool.ngram.tables.backoff import log
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import Trie, TrieBuilder, ngram_keys
from lmtool.system.arrays import FloatArray, IntArray


def _each_order(batches: Iterator[pa.RecordBatch], order: int) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yield each order found and its batches, and all orders from 2 to n, without batches if there are none."""
    after = 2
    for k, rows in itertools.groupby(by_order(batches, order), key=lambda pair: pair[0]):
        for missing in range(after, k):
            yield missing, iter(())
        yield k, (batch for _, batch in rows)
        after = max(after, k + 1)
    for missing in range(after, order + 1):
        yield missing, iter(())


def by_order(batches: Iterator[pa.RecordBatch], order: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of rows sorted by k, cut so that each has one order and no n-gram is in two of them."""
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        whole = batch if waiting is None else pa.concat_batches([waiting, batch])
        # The last n-gram may continue in the next batch.
        keys = [whole.column(name).to_numpy() for name in ("k", *ngram_columns(order))]
        last = int(np.flatnonzero(changes(keys))[-1])
        yield from _orders(whole.slice(0, last))
        waiting = whole.slice(last)
    if waiting is not None:
        yield from _orders(waiting)


def _orders(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    k = batch.column("k").to_numpy()
    cuts = [*np.flatnonzero(changes([k])), len(k)]
    for first, last in itertools.pairwise(cuts):
        yield int(k[first]), batch.slice(first, last - first)


def words_of(batch: pa.RecordBatch, k: int) -> IntArray:
    """Return the words of the n-grams of order k, int64 `[M, k]`."""
    return np.stack([batch.column(name).to_numpy() for name in ngram_columns(k)], axis=1).astype(np.int64)


def assemble_counts(
    batches: Iterator[pa.RecordBatch],
    sizes: dict[int, int],
    unigrams: Counts,
    ranks: IntArray,
    order: int,
    storage: Storage,
) -> Counts:
    """Return the counts of a text's n-grams.

    batches: rows of order_schema sorted by all their columns; an n-gram of order 2 may have several, whose counts
    add up. sizes: the number of rows of each order, or more. unigrams: the counts of order 1. ranks: as
    kenlm_ranks returns them. Raises UserError if the rows are not the n-grams of one text.
    """
    builder = TrieBuilder(unigrams.trie.vocabulary_size, storage)
    suffix: list[Packed] = []
    count = [unigrams.count[0]]
    for k, rows in _each_order(batches, order):
        current = _Order(k, builder, sizes.get(k, 0))
        size = len(current.keys)
        suffixes, counts = storage.empty(size, np.int64), storage.empty(size, np.int64)
        for batch in rows:
            words = words_of(batch, k)
            first = changes(list(words.T))
            words = words[first]
            here = slice(current.size, current.size + len(words))
            suffixes[here] = current.nodes(words[:, 1:])
            counts[here] = np.add.reduceat(batch.column("count").to_numpy(), np.flatnonzero(first))
            current.add(words)
        builder.add(current.keys[: current.size])
        suffix.append(Packed.of(suffixes[: current.size], builder.sizes[-2] - 1, storage))
        count.append(Packed.of(counts[: current.size], storage=storage))
        storage.release()
    trie = builder.finish()
    newest = newest_ngram(trie, ranks, unigrams.bos, order - 1, storage)
    return Counts(trie, suffix, count, unigrams.bos, unigrams.unk, newest)


class _Order:
    """The keys of the n-grams of one order, added batch by batch."""

    def __init__(self, k: int, builder: TrieBuilder, size: int) -> None:
        """builder: of all lower orders. size: the number of n-grams, or more."""
        self.k = k
        self.shorter = builder.finish()
        self.keys = builder.storage.empty(size, np.uint64)
        self.size = 0

    def add(self, words: IntArray) -> None:
        """Add n-grams `[M, k]`, all different, after those added before."""
        keys = ngram_keys(self.nodes(words[:, :-1]), words[:, -1], self.shorter.nodes.word_width)
        self.keys[self.size : self.size + len(words)] = keys
        self.size += len(words)

    def nodes(self, words: IntArray) -> IntArray:
        """Return the nodes `[M]` of n-grams `[M, k - 1]` within their order."""
        found = self.shorter.find(np.ascontiguousarray(words)) - self.shorter.first(self.k - 1)
        if (found < 0).any():
            raise UserError("the n-grams of counts.folder are not those of one text: delete the folder and run again")
        return found


def assemble_table(
    batches: Iterator[pa.RecordBatch],
    sizes: dict[int, int],
    unigrams: FloatArray,
    unused: float,
    order: int,
    storage: Storage,
) -> tuple[Trie, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the trie of a back-off table, and its log_prob and log_backoff.

    batches: rows of estimate_schema sorted by their words. sizes: the number of n-grams of each order from 2 on.
    unigrams: p `[V]`. unused: the back-off weight of n-grams that nothing follows.
    """
    first = np.cumsum([0, len(unigrams), *(sizes.get(k, 0) for k in range(2, order + 1))])
    log_prob = storage.empty(int(first[-1]), np.float32)
    log_backoff = storage.empty(int(first[-2]), np.float32)
    log_prob[: len(unigrams)] = log(unigrams)
    log_backoff[:] = log(np.array([unused]))
    builder = TrieBuilder(len(unigrams), storage)
    for k, rows in _each_order(batches, order):
        current = _Order(k, builder, sizes.get(k, 0)) if k > 1 else None
        for batch in rows:
            words = words_of(batch, k)
            begins = np.flatnonzero(changes(list(words.T)))
            p, weight = (
                np.fmax.reduceat(batch.column(name).to_numpy(zero_copy_only=False), begins) for name in ("p", "weight")
            )  # one row of an n-gram has p, and one the weight; the other row has nan there
            words = words[begins]
            if current is None:
                here = ~np.isnan(weight)
                log_backoff[words[here, 0]] = log(weight[here])
                continue
            kept = ~np.isnan(p)
            at = int(first[k - 1]) + current.size
            current.add(words[kept])
            log_prob[at : at + int(kept.sum())] = log(p[kept])
            if k < order:
                weight = np.where(np.isnan(weight), unused, weight)[kept]
                log_backoff[at : at + len(weight)] = log(weight)
        if current is not None:
            builder.add(current.keys)
            storage.release()
    return builder.finish(), log_prob, log_backoff
