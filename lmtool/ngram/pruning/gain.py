"""Pruning by expected gain: removes the n-grams that are expected to help least on new text, and estimates the shorter
ones again from the counts that they then stand for.

Keeping hw moves the mass share(hw) from the shorter context to w. The expected gain in log-likelihood, on as
much new text as train, is

    gain(hw) = c*(hw) log( p(w|h) / p'(w|h) ) - c*(h) ( p(w|h) - p'(w|h) )
    p(w|h) = share(hw) + weight(h) p(w|h'),     p'(w|h) = (weight(h) + share(hw)) p(w|h')

where c* are expected counts (see ExpectedCounts), not those of the training text: Stolcke's criterion (1998) and that
of Siivola, Hirsimaki & Virpioja (2007) trust the model's own p(w|h), which for n-grams seen once is several times too
high just where p(w|h') is low. The last term is the loss of the other words after h, to first order. Longer n-grams are
pruned first; removed n-grams add to the counts of shorter ones (formulas.adjusted_counts) before these are pruned, so
that Kneser-Ney's lower orders have the right counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.estimation.estimate import Selection, estimate, keep_contexts
from lmtool.ngram.estimation.formulas import adjusted_counts, contexts_of
from lmtool.ngram.pruning.entropy import largest_within
from lmtool.ngram.smoothers.base import Combination, Counting, Smoother
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import Array, FloatArray, IntArray
from lmtool.system.parallel import run, threads


def prune_to_size_by_gain(
    counts: Counts, smoother: Smoother, table: BackoffTable, size: int, storage: Storage | None = None
) -> tuple[BackoffTable, float]:
    """Return the model of at most `size` n-grams, 1-grams included, and the lowest gain kept, in nats per token.

    table: the model of all n-grams, estimated from the counts by `smoother`, whose parameters are fitted.
    """
    if smoother.combination is not Combination.interpolated or smoother.counting is Counting.tables:
        raise UserError("prune_method=gain: the smoother must interpolate counts: set prune_method=entropy")
    pruning = _Pruning(counts, smoother, table, storage or Storage())
    threshold, selection = largest_within(size, pruning.select)
    return estimate(counts, smoother, selection=selection, fit=False, storage=storage), threshold


class _Terms(NamedTuple):
    """Terms of the gain of n-grams hw `[N]`: a(hw), share(hw), weight(h), p(w|h'), a(h.)."""

    a: IntArray
    share: FloatArray
    weight: FloatArray
    lower: FloatArray
    total: FloatArray


@dataclass(frozen=True, slots=True)
class _Order:
    """Adjusted counts of order k, and expected counts of its n-grams and of their contexts."""

    k: int
    a: Packed
    grams: ExpectedCounts
    contexts: ExpectedCounts


class _Pruning:
    """Selects the n-grams that a threshold keeps."""

    def __init__(self, counts: Counts, smoother: Smoother, table: BackoffTable, storage: Storage) -> None:
        self.counts, self.smoother, self.table, self.storage = counts, smoother, table, storage
        self.trie = counts.trie
        self.tokens = int(counts.count[0][:].sum()) - counts.count[0][counts.bos : counts.bos + 1][0]
        self.orders = [self._order(k) for k in range(2, counts.order + 1)]
        self.unigrams = adjusted_counts(counts, 1, smoother.counting, storage)
        # Counts of the highest order, and of others that are not continuations, do not depend on what is removed.
        fixed = self.orders[-1:] if smoother.counting is Counting.continuations else self.orders
        self.gains = {order.k: self._gains(order) for order in fixed}

    def select(self, threshold: float) -> Selection:
        """Return the n-grams with at least this gain, in nats per token of new text, and their contexts."""
        mask = self.storage.empty(sum(self.trie.sizes), np.bool_)
        mask[: self.trie.first(2)] = True
        adjusted = [self.unigrams, *(order.a for order in self.orders)]
        n, revised = self.counts.order, self.smoother.counting is Counting.continuations
        for k in range(n, 0, -1):
            nodes, longer = (self.trie.span(m) for m in (k, min(k + 1, n)))
            if k < n and revised:
                counting, kept = self.smoother.counting, mask[longer]
                adjusted[k - 1] = adjusted_counts(self.counts, k, counting, self.storage, above=adjusted[k], mask=kept)
            if k > 1:
                gains = self.gains.get(k)
                if gains is None:
                    gains = self._gains(replace(self.orders[k - 2], a=adjusted[k - 1]))
                mask[nodes] = gains >= threshold
            if 1 < k < n:
                keep_contexts(self.trie, k, mask)
            self.storage.release()
        return Selection(mask, adjusted)

    def _order(self, k: int) -> _Order:
        """Return the expected counts of order k and of its contexts, from their counts of counts in bins."""
        a = adjusted_counts(self.counts, k, self.smoother.counting, self.storage)
        blocks = self.trie.context_blocks(k)
        grams = np.zeros((len(blocks), LARGEST + 2, BINS), dtype=np.int64)
        contexts = np.zeros_like(grams)

        def count(at: int, first: int, last: int) -> None:
            begins, terms = self._terms(k, a, first, last)
            grams[at] = histogram(terms.a, bins_of(terms.total * terms.lower))
            followed = begins[:-1][begins[1:] > begins[:-1]]
            contexts[at] = histogram(terms.total[followed].astype(np.int64), None)

        for first, last in self.storage.pieces(len(blocks), 8 * threads()):
            run([(count, at, *blocks[at]) for at in range(first, last)])
        return _Order(k, a, ExpectedCounts.of(grams.sum(axis=0)), ExpectedCounts.of(contexts.sum(axis=0)))

    def _gains(self, order: _Order) -> Array:
        """Return the gain of each n-gram of an order, in nats per token, float32."""
        gains = self.storage.empty(self.trie.sizes[order.k - 1], np.float32)
        blocks = self.trie.context_blocks(order.k)

        def fill(first: int, last: int) -> None:
            _, terms = self._terms(order.k, order.a, first, last)
            at = int(self.trie.begins(order.k - 1, first, last)[0])
            gains[at : at + len(terms.a)] = _gain(terms, order) / self.tokens

        for first, last in self.storage.pieces(len(blocks), 8 * threads()):
            run([(fill, *block) for block in blocks[first:last]])
        return gains

    def _terms(self, k: int, packed: Packed, first: int, last: int) -> tuple[IntArray, _Terms]:
        """Return where the n-grams of each context begin, for contexts `first` to before `last`, and their terms."""
        begins = self.trie.begins(k - 1, first, last)
        start, stop = int(begins[0]), int(begins[-1])
        begins = begins - start
        a = packed[start:stop]
        h = contexts_of(a, begins)
        context = np.repeat(np.arange(last - first), np.diff(begins))
        with np.errstate(divide="ignore", invalid="ignore"):  # contexts that nothing follows
            share = self.smoother.numerator(k, a) / self.smoother.denominator(k, h)[context]
            weight = self.smoother.weight(k, h)[context]
        suffix = self.trie.first(k - 1) + self.counts.suffix[k - 2][start:stop]
        lower = np.exp(self.table.log_prob[: self.trie.first(k)][suffix].astype(np.float64))
        return begins, _Terms(a, share, weight, lower, h.total[context])


def _gain(terms: _Terms, order: _Order) -> FloatArray:
    """Return gain(hw) on new text of the size of train, in nats, `[N]`."""
    p = terms.share + terms.weight * terms.lower
    without = (terms.weight + terms.share) * terms.lower
    expected = order.grams.expected(terms.a, bins_of(terms.total * terms.lower))
    visits = order.contexts.expected(terms.total.astype(np.int64), None)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = expected * np.log(p / without) - visits * (p - without)
    return np.where(terms.a > 0, gain, 0.0)


LARGEST = 4  # maximum r with bins; the same amount is subtracted from larger ones as from this one
LOWEST, BINS = -32, 48  # bins are powers of two of e, from 2^-32 to 2^15 and beyond
SHRINK = 20.0  # number of n-grams of the average ratio that are added to each bin
MAX_SUBTRACTED = 1.5  # limit for bins with few n-grams


def bins_of(expected: FloatArray) -> IntArray:
    """Return the bin of each e, int64 `[N]`."""
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(expected))
    bins: IntArray = np.clip(exponents, LOWEST, LOWEST + BINS - 1).astype(np.int64) - LOWEST
    return bins


def histogram(r: IntArray, bins: IntArray | None) -> IntArray:
    """Return n_0 to n_{LARGEST + 1} in each bin, int64 `[LARGEST + 2, BINS]`; all in the first bin if bins is None."""
    r = np.minimum(r, LARGEST + 2)
    cells = r * BINS + (bins if bins is not None else 0)
    counted: Array = np.bincount(cells, minlength=(LARGEST + 3) * BINS)
    return counted.reshape(LARGEST + 3, BINS)[:-1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class ExpectedCounts:
    """Expected counts by the enhanced Good-Turing method (Church & Gale 1991, sec. 2).

    An n-gram seen r times is expected r* = (r + 1) n_{r+1} / n_r times in as much new text (Good & Turing). But an
    n-gram seen once that the shorter context expects occurs again far more often than one that it does not expect.
    Therefore n_r is counted in bins of the number of times that the shorter context expects the n-gram,

        e(hw) = a(h.) p(w|h'),     r*(bin) = (r + 1) n_{r+1}(bin) / n_r(bin)

    star: r* of r = 0 to LARGEST in each bin, float64 `[LARGEST + 1, BINS]`. more: the discount of larger r.
    """

    star: FloatArray
    more: float

    @classmethod
    def of(cls, n: IntArray) -> ExpectedCounts:
        """Return expected counts, given counts of counts in bins, the sum of `histogram` over all n-grams."""
        total = n.sum(axis=1)
        star = np.zeros((LARGEST + 1, n.shape[1]))
        average = np.zeros(LARGEST + 1)
        for r in range(1, LARGEST + 1):
            ratio = total[r + 1] / max(total[r], 1)
            within = (n[r + 1] + ratio * SHRINK) / (n[r] + SHRINK)
            average[r] = np.clip((r + 1) * ratio, r - MAX_SUBTRACTED, r)
            star[r] = np.clip((r + 1) * within, max(r - MAX_SUBTRACTED, 0.0), r)
        return cls(star, LARGEST - max(average[LARGEST], 0.0))

    def expected(self, r: IntArray, bins: IntArray | None) -> FloatArray:
        """Return r* of counts r `[N]` in their bins `[N]`, float64 `[N]`; the first bin if bins is None."""
        low = self.star[np.minimum(r, LARGEST), bins if bins is not None else 0]
        return np.where(r <= LARGEST, low, r - self.more)
