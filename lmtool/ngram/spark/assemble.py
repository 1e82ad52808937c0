"""Step 4: n-grams that Spark has counted and sorted become Counts, as count_ngrams makes them, to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, from_last_start
from lmtool.ngram.spark.levels import changes
from lmtool.ngram.spark.tasks import ngram_columns
from lmtool.ngram.tables.backoff import log
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import Trie, TrieBuilder, ngram_keys
from lmtool.system.arrays import FloatArray, IntArray


def by_order(batches: Iterator[pa.RecordBatch], order: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of rows sorted by k, cut so that each has one order, and that no n-gram is in two of them."""
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        whole = batch if waiting is None else pa.concat_batches([waiting, batch])
        # The last n-gram may go on in the next batch.
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
    """The words of the n-grams of order k, int64 `[M, k]`."""
    return np.stack([batch.column(name).to_numpy() for name in ngram_columns(k)], axis=1).astype(np.int64)


def assemble_counts(
    batches: Iterator[pa.RecordBatch],
    sizes: dict[int, int],
    unigrams: Counts,
    numbers: IntArray,
    order: int,
    storage: Storage,
) -> Counts:
    """The counts of a text's n-grams.

    batches: rows of tasks.order_schema sorted by all their columns; an n-gram of order 2 may have several, whose counts
    add up. sizes: at least how many rows of each order there are. unigrams: the counts of order 1. numbers: as
    tasks.count_orders has them. Raises UserError for rows that are no n-grams of one text.
    """
    builder = TrieBuilder(unigrams.trie.vocabulary_size, storage)
    suffix: list[Packed] = []
    count = [unigrams.count[0]]
    newest: list[IntArray] = []
    current = _Order(2, builder.finish(), sizes, storage, counted=True)
    for k, batch in by_order(batches, order):
        if k == 0:
            newest += list(words_of(batch, order))
            continue
        while k > current.k:
            current.finish(builder, suffix, count)
            current = _Order(current.k + 1, builder.finish(), sizes, storage, counted=True)
        current.add(words_of(batch, k), batch.column("count").to_numpy())
    while len(count) < order:
        current.finish(builder, suffix, count)
        if len(count) < order:
            current = _Order(current.k + 1, builder.finish(), sizes, storage, counted=True)
    last = from_last_start(newest[latest(newest, numbers)][1:], unigrams.bos)
    return Counts(builder.finish(), suffix, count, unigrams.bos, unigrams.unk, last)


class _Order:
    """The n-grams of one order as they come in."""

    def __init__(
        self, k: int, shorter: Trie, sizes: dict[int, int], storage: Storage, *, counted: bool = False
    ) -> None:
        """shorter: the trie of all lower orders. sizes: at least how many n-grams of each order come. counted: whether
        their counts and suffixes are kept too.
        """
        self.k = k
        self.shorter = shorter
        size = sizes.get(k, 0)
        self.keys = storage.empty(size, np.uint64)
        self.suffixes, self.counts = np.empty(0, np.int64), np.empty(0, np.int64)
        if counted:
            self.suffixes, self.counts = storage.empty(size, np.int64), storage.empty(size, np.int64)
        self.size = 0
        self.storage = storage

    def add(self, words: IntArray, count: npt.NDArray[np.int64]) -> None:
        """Add n-grams `[M, k]` with their counts behind those before; equal ones are one."""
        first = changes([words[:, j] for j in range(self.k)])
        count = np.add.reduceat(count, np.flatnonzero(first))
        words = words[first]
        here = slice(self.size, self.size + len(words))
        self.suffixes[here], self.counts[here] = self._nodes(words[:, 1:]), count
        self.add_keys(words)

    def add_keys(self, words: IntArray) -> None:
        """Add n-grams `[M, k]`, all different, behind those before."""
        keys = ngram_keys(self._nodes(words[:, :-1]), words[:, -1], self.shorter.nodes.word_width)
        self.keys[self.size : self.size + len(words)] = keys
        self.size += len(words)

    def _nodes(self, words: IntArray) -> IntArray:
        found = self.shorter.find(np.ascontiguousarray(words)) - self.shorter.first(self.k - 1)
        if (found < 0).any():
            raise UserError("the n-grams of counts.folder are not those of one text: delete the folder and run again")
        return found

    def finish(self, builder: TrieBuilder, suffix: list[Packed], count: list[Packed]) -> None:
        """Pack what has come."""
        builder.add(self.keys[: self.size])
        suffix.append(Packed.of(self.suffixes[: self.size], builder.sizes[-2] - 1, self.storage))
        count.append(Packed.of(self.counts[: self.size], storage=self.storage))
        self.storage.release()


def assemble_table(
    batches: Iterator[pa.RecordBatch],
    sizes: dict[int, int],
    unigrams: FloatArray,
    unused: float,
    order: int,
    storage: Storage,
) -> tuple[Trie, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The trie of a back-off table, and its log_prob and log_backoff.

    batches: rows of shares.estimate_schema sorted by their words. sizes: the number of n-grams of each order from 2 on.
    unigrams: p `[V]`. unused: the back-off weight of n-grams that nothing follows.
    """
    first = np.cumsum([0, len(unigrams), *(sizes.get(k, 0) for k in range(2, order + 1))])
    log_prob = storage.empty(int(first[-1]), np.float32)
    log_backoff = storage.empty(int(first[-2]), np.float32)
    log_prob[: len(unigrams)] = log(unigrams)
    log_backoff[:] = log(np.array([unused]))
    builder = TrieBuilder(len(unigrams), storage)
    current = _Order(2, builder.finish(), sizes, storage)
    for k, batch in by_order(batches, order):
        while k > current.k:
            builder.add(current.keys)
            storage.release()
            current = _Order(current.k + 1, builder.finish(), sizes, storage)
        words = words_of(batch, k)
        begins = np.flatnonzero(changes([words[:, j] for j in range(k)]))
        p, weight = (
            np.fmax.reduceat(batch.column(name).to_numpy(zero_copy_only=False), begins) for name in ("p", "weight")
        )  # of each n-gram's rows one has p, and one the weight; the other's is not a number
        words = words[begins]
        if k == 1:
            here = ~np.isnan(weight)
            log_backoff[words[here, 0]] = log(weight[here])
            continue
        kept = ~np.isnan(p)
        at = int(first[k - 1]) + current.size
        current.add_keys(words[kept])
        log_prob[at : at + int(kept.sum())] = log(p[kept])
        if k < order:
            weight = np.where(np.isnan(weight), unused, weight)[kept]
            log_backoff[at : at + len(weight)] = log(weight)
    while len(builder.sizes) < order:
        builder.add(current.keys)
        if len(builder.sizes) < order:
            current = _Order(current.k + 1, builder.finish(), sizes, storage)
    return builder.finish(), log_prob, log_backoff


def latest(found: Sequence[IntArray], numbers: IntArray) -> int:
    """The index of the n-gram that KenLM comes to last, among the last ones `[n]` of the partitions."""
    return max(range(len(found)), key=lambda at: numbers[found[at][:0:-1]].tolist())
