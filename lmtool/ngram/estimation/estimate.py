"""Step 2: counts -> back-off table, in the same way for every smoother.

For an n-gram hw that was seen and its context h, a smoother gives share(hw) = numerator(hw) / denominator(h) and the
weight of the shorter context h'. From these, order by order,

    interpolated     p(w|h) = share(hw) + weight(h) p(w|h')                  (Chen & Goodman 1998)
    backed off       p(w|h) = share(hw) if hw was seen, else backoff(h) p(w|h'), with backoff(h) such that the
                     probabilities of all words sum to one                   (Katz 1987, eq. 2)

and the unigrams fall back on the uniform distribution. The n-grams of an order are estimated in blocks of whole
contexts, so that temporary arrays stay small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.estimation.formulas import (
    Observations,
    adjusted_counts,
    estimate_contexts,
    fit_order,
    observations,
    unigram_probabilities,
)
from lmtool.ngram.smoothers.base import Combination, Counting, Smoother
from lmtool.ngram.smoothers.srilm_options import PerOrder
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import Trie
from lmtool.system.arrays import Array, FloatArray
from lmtool.system.parallel import run, threads


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of n-grams to keep in the model. mask: bool `[nodes]`, True for 1-grams and contexts of kept n-grams.

    adjusted: a of each order, which may depend on what is left out; `estimate` needs it, a search for a size does not.
    """

    mask: Array
    adjusted: Sequence[Packed] = ()

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.mask))


def keep_contexts(trie: Trie, k: int, mask: Array) -> None:
    """Mark in `mask`, bool `[nodes]`, the n-grams of order k that are contexts of marked ones."""
    begins = trie.begins(k, 0, trie.sizes[k - 1])
    longer = mask[trie.span(k + 1)]
    mask[trie.span(k)] |= np.diff(np.concatenate([[0], np.cumsum(longer)])[begins]) > 0


def estimate(
    counts: Counts,
    smoother: Smoother,
    *,
    cutoffs: list[int] | None = None,
    word_mask: Array | None = None,
    selection: Selection | None = None,
    fit: bool = True,
    storage: Storage | None = None,
) -> BackoffTable:
    """Estimate the model of all orders.

    cutoffs: one per order; n-grams with that count or less are left out, as by KenLM's --prune, and their mass goes to
    the shorter context.
    word_mask: bool `[V]`, the words that stay, among them `<s>`, `</s>` and `<unk>`, as by KenLM's --limit_vocab_file.
    selection: the n-grams that stay, instead of both; words that are not listed have probability 0.
    fit: whether to estimate the smoother's parameters first.
    storage: memory to use, unlimited if None.
    """
    trie, storage = counts.trie, storage or Storage()
    log_prob = storage.empty(sum(trie.sizes), np.float32)
    log_backoff = storage.empty(sum(trie.sizes[:-1]), np.float32)
    pruned = word_mask is not None or (cutoffs is not None and any(cutoffs))
    mask = storage.empty(len(log_prob), np.bool_) if pruned else None  # whether each n-gram is kept
    if selection is not None:
        mask = selection.mask
    kept_words = np.ones(trie.sizes[0], dtype=np.bool_) if word_mask is None else word_mask
    predicted = (trie.vocabulary_size if selection is None else int(np.count_nonzero(kept_words))) - 1
    lower, unseen = np.empty(0), 0.0
    for k, a in enumerate(selection.adjusted if selection else observations(counts, smoother, storage), start=1):
        if fit:
            fit_order(counts, smoother, k, a)
        if mask is not None and selection is None:
            _mark(counts, k, cutoffs[k - 1] if cutoffs else 0, word_mask, mask, storage)
        nodes = trie.span(k)
        if k == 1:
            lower, unseen = unigram_probabilities(counts, smoother, a[:], kept_words)
            log_prob[nodes] = log(lower)
            continue
        into = log_prob[nodes], log_backoff[trie.span(k - 1)]
        kept = None if mask is None else mask[nodes]
        lower = _estimate_order(counts, smoother, k, a, lower, kept, predicted, into, storage)
        storage.release()
    notes = _zero_notes(smoother, trie, log_prob[: trie.vocabulary_size][kept_words], log_backoff)
    table = BackoffTable(
        trie=trie,
        log_prob=log_prob,
        log_backoff=log_backoff,
        bos=counts.bos,
        unseen=math.log(unseen) if unseen > 0 else -math.inf,
        missing=smoother.missing,
        normalized=smoother.normalized,
        interpolated=smoother.combination is Combination.interpolated,
        notes=(*smoother.notes, *smoother.notes_on_values, *notes),
    )
    if mask is None:
        return table
    return replace(table.select(mask, storage), suffix_closed=selection is None)


def _zero_notes(smoother: Smoother, trie: Trie, unigrams: Array, log_backoff: Array) -> list[str]:
    """Return a note on the words that may have probability 0, if there are any. unigrams: log p `[V]` of kept words."""
    zero = int(np.isneginf(unigrams).sum()) - 1  # <s> is never predicted
    which = [f"words that do not occur in train ({zero:,} of the vocabulary)"] if zero > 0 else []
    if smoother.combination is Combination.interpolated:
        weights = ((k, log_backoff[trie.span(k - 1)]) for k in range(2, trie.order + 1))
        orders = ", ".join(str(k) for k, order_weight in weights if np.isneginf(order_weight).any())
        which += [f"words not seen after a context (order {orders})"] if orders else []
    return [f"{' and '.join(which)} have probability 0: text with them has perplexity inf"] if which else []


def estimate_per_order(counts: Counts, smoother: PerOrder, *, closed: bool) -> BackoffTable:
    """Estimate a model of n-grams with the smoother's minimum counts, and their contexts. closed: without `<unk>`."""
    trie, mask, adjusted = counts.trie, np.ones(sum(counts.trie.sizes), dtype=bool), list[Packed]()
    for k, own in enumerate(smoother.smoothers, start=1):
        a = adjusted_counts(counts, k, own.counting, Storage())[:]
        unknown = np.zeros((len(a), k), dtype=bool)
        if closed and counts.count[0][np.array([counts.unk])][0]:
            unknown = trie.ngrams(k, 0, len(a)) == counts.unk
        if k < counts.order and own.counting is Counting.continuations:  # treated as if they began with <s>
            a[unknown[:, 0]] = counts.count[k - 1][:][unknown[:, 0]]
        a[unknown[:, -1]] = 0
        fit_order(counts, smoother, k, Packed.of(a))
        a[unknown.any(axis=1)] = 0
        adjusted.append(Packed.of(a))
        if k > 1:
            mask[trie.span(k)] = a >= smoother.min_counts[k - 1]
    for k in range(counts.order - 1, 1, -1):
        keep_contexts(trie, k, mask)
    word_mask = np.arange(trie.vocabulary_size) != (counts.unk if closed else -1)
    return estimate(counts, smoother, word_mask=word_mask, selection=Selection(mask, adjusted), fit=False)


def _mark(counts: Counts, k: int, cutoff: int, word_mask: Array | None, mask: Array, storage: Storage) -> None:
    """Fill in the mask of order k from the mask of order k-1: n-grams above the cut-off with only listed words."""
    trie, start = counts.trie, counts.trie.first(k)
    for first, last in storage.pieces(trie.sizes[k - 1]):
        mask[start + first : start + last] = counts.count[k - 1][first:last] > cutoff if cutoff else True
    if word_mask is None:
        return
    if k == 1:
        mask[: len(word_mask)] &= word_mask
        return
    for first, last in trie.context_blocks(k):
        begins = trie.begins(k - 1, first, last)
        shorter = np.repeat(mask[trie.first(k - 1) + first : trie.first(k - 1) + last], np.diff(begins))
        words = trie.words(k, int(begins[0]), int(begins[-1]))
        mask[start + begins[0] : start + begins[-1]] &= shorter & word_mask[words]


def _estimate_order(
    counts: Counts,
    smoother: Smoother,
    k: int,
    a: Observations,
    lower: FloatArray,
    mask: Array | None,
    predicted: int,
    into: tuple[Array, Array],
    storage: Storage,
) -> FloatArray:
    """Estimate the n-grams of order k, given p `[M']` of the order below; return their p `[M]`, empty for the last.

    mask: bool `[M]`, of those that stay. predicted: number of words that can be predicted. into: log p of the n-grams
    and log back-off weights of their contexts.
    """
    trie, suffix, (log_prob, log_backoff) = counts.trie, counts.suffix[k - 2], into
    probability = storage.empty(trie.sizes[k - 1] if k < counts.order else 0, np.float64)

    def fill(first: int, last: int) -> None:
        begins = trie.begins(k - 1, first, last)
        start, stop = int(begins[0]), int(begins[-1])
        shorter, kept = lower[suffix[start:stop]], None if mask is None else mask[start:stop]
        p, weight = estimate_contexts(smoother, k, a[start:stop], begins - start, shorter, kept, predicted)
        if len(probability):
            probability[start:stop] = p
        log_prob[start:stop], log_backoff[first:last] = log(p), log(weight)

    blocks = trie.context_blocks(k)
    for first, last in storage.pieces(len(blocks), 8 * threads()):
        run([(fill, *bounds) for bounds in blocks[first:last]])
    return probability
