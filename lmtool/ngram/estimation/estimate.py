"""Step 2: counts -> back-off table, in the same way for every smoother.

For an n-gram hw that was seen and its context h, a smoother gives share(hw) = numerator(hw) / denominator(h) and the
weight of the shorter context h'. From these, order by order,

    interpolated     p(w|h) = share(hw) + weight(h) p(w|h')                  (Chen & Goodman 1998)
    backed off       p(w|h) = share(hw) where hw was seen, else backoff(h) p(w|h'), with backoff(h) such that the
                     probabilities of all words sum to one                   (Katz 1987, eq. 2)

and the unigrams fall back on the uniform distribution. The n-grams of an order are estimated in blocks of whole
contexts, so that temporary arrays stay small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.estimation.adjusted_counts import adjusted_counts, count_of_counts, kenlm_count_of_counts
from lmtool.ngram.smoothers.base import Contexts, Form, MergingSmoother, Smoother
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import Trie
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.parallel import run, threads

Array = npt.NDArray[Any]
LEAST_LEFT = 3e-6  # the least mass that a context leaves to words unseen after it (SRILM's Prob_Epsilon)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which n-grams stay in the model. mask: bool `[nodes]`, True for 1-grams and for the context of what stays.

    adjusted: a of each order, which may depend on what is left out.
    """

    mask: Array
    adjusted: list[Packed]

    @property
    def size(self) -> int:
        """The number of n-grams that stay."""
        return int(np.count_nonzero(self.mask))


def estimate(
    counts: Counts,
    smoother: Smoother,
    *,
    cutoffs: list[int] | None = None,
    listed: Array | None = None,
    selection: Selection | None = None,
    fit: bool = True,
    storage: Storage | None = None,
) -> BackoffTable:
    """Estimate the model of all orders.

    cutoffs: one per order; n-grams with that count or less are left out, as by KenLM's --prune, and their mass goes to
    the shorter context. listed: bool `[V]`, the words that stay, among them `<s>`, `</s>` and `<unk>`, as by KenLM's
    --limit_vocab_file; not read for merged counts. selection: instead of both, what else is left out. fit: estimate the
    smoother's parameters first. storage: what memory may be used; without a limit if None. Raises UserError where the
    disk is full.
    """
    if isinstance(smoother, MergingSmoother):
        from lmtool.ngram.estimation.merged_estimate import estimate_merged

        return estimate_merged(counts, smoother, cutoffs)
    trie, storage = counts.trie, storage or Storage()
    log_prob = storage.empty(sum(trie.sizes), np.float32)
    log_backoff = storage.empty(sum(trie.sizes[:-1]), np.float32)
    pruned = listed is not None or (cutoffs is not None and any(cutoffs))
    mask = storage.empty(len(log_prob), np.bool_) if pruned else None  # of the n-grams that stay
    if selection is not None:
        mask = selection.mask
    kept_words = np.ones(trie.sizes[0], dtype=np.bool_) if listed is None else listed
    lower, unseen = np.empty(0), 0.0
    for k in range(1, counts.order + 1):
        a = selection.adjusted[k - 1] if selection else adjusted_counts(counts, k, smoother.counting, storage)
        if fit:
            n = count_of_counts(a)
            smoother.fit(k, n, kenlm_count_of_counts(n, counts, a, k))
        nodes = slice(trie.first(k), trie.first(k + 1))
        if mask is not None and selection is None:
            for first, last in storage.pieces(trie.sizes[k - 1]):
                above = counts.count[k - 1].get(first, last) > cutoffs[k - 1] if cutoffs and cutoffs[k - 1] else True
                mask[nodes.start + first : nodes.start + last] = above
            if k == 1:
                mask[nodes] &= kept_words
            for first, last in trie.context_blocks(k) if listed is not None and k > 1 else ():
                begins = trie.begins(k - 1, first, last)
                shorter = np.repeat(mask[trie.first(k - 1) + first : trie.first(k - 1) + last], np.diff(begins))
                words = trie.words(k, int(begins[0]), int(begins[-1]))
                mask[nodes.start + begins[0] : nodes.start + begins[-1]] &= shorter & kept_words[words]
        if k == 1:
            lower, unseen = unigram_probabilities(counts, smoother, a.all(), kept_words)
            log_prob[nodes] = log(lower)
            continue
        probability = storage.empty(trie.sizes[k - 1] if k < counts.order else 0, np.float64)
        order = _Order(
            k=k,
            trie=trie,
            smoother=smoother,
            a=a,
            suffix=counts.suffix[k - 2],
            lower=lower,
            mask=None if mask is None else mask[nodes],
            probability=probability,
            log_prob=log_prob[nodes],
            log_backoff=log_backoff[trie.first(k - 1) : trie.first(k)],
        )
        blocks = trie.context_blocks(k)
        for first, last in storage.pieces(len(blocks), 8 * threads()):
            run([(_estimate_block, order, *bounds) for bounds in blocks[first:last]])
        lower = probability
        storage.release()
    table = table_of(smoother, trie, log_prob, log_backoff, counts.bos, unseen, kept_words)
    if mask is None:
        return table
    return replace(table.select(mask, storage), suffix_closed=selection is None)


def table_of(
    smoother: Smoother,
    trie: Trie,
    log_prob: Array,
    log_backoff: Array,
    bos: int,
    unseen: float,
    kept: Array | slice = slice(None),
) -> BackoffTable:
    """Return as a table what a smoother has estimated.

    unseen: the probability of each type outside the vocabulary. kept: bool `[V]`, the words that a note may speak of.
    """
    return BackoffTable(
        trie=trie,
        log_prob=log_prob,
        log_backoff=log_backoff,
        bos=bos,
        unseen=math.log(unseen) if unseen > 0 else -math.inf,
        missing=smoother.missing,
        normalised=smoother.normalised,
        suffix_closed=True,
        notes=(*smoother.notes, *_zero_notes(smoother, log_prob[: trie.vocabulary_size][kept])),
    )


def _zero_notes(smoother: Smoother, unigrams: Array) -> list[str]:
    """Return a note on the words that have probability 0, if there may be any. unigrams: log p `[V]` of those kept."""
    zero, orders = int(np.isneginf(unigrams).sum()) - 1, []  # <s> is never predicted
    if smoother.form is Form.interpolated and not isinstance(smoother, MergingSmoother):
        # Contexts whose words were all seen once, all seen twice, and all more often, up to 2^39 times.
        total = np.array([1.0, 2.0, *(2.0**k for k in range(2, 40))])
        probes = Contexts(total, 1.0 * (total == 1), 1.0 * (total == 2), 1.0 * (total > 2))
        orders = [k for k in range(2, len(smoother.values) + 1) if (smoother.weight(k, probes) <= 0).any()]
    which = [f"words that do not occur in train ({zero:,} of the vocabulary)"] if zero > 0 else []
    which += [f"words not seen after a context (order {', '.join(map(str, orders))})"] if orders else []
    return [f"{' and '.join(which)} have probability 0: text with them has perplexity inf"] if which else []


@dataclass(frozen=True, slots=True)
class _Order:
    """What the blocks of order k share: their input, and the three arrays `probability`, `log_prob`, `log_backoff` that
    they fill.
    """

    k: int
    trie: Trie
    smoother: Smoother
    a: Packed
    suffix: Packed
    lower: FloatArray
    mask: Array | None
    probability: FloatArray
    log_prob: Array
    log_backoff: Array


def _estimate_block(order: _Order, first_context: int, last_context: int) -> None:
    """Fill in the n-grams of order k whose contexts are nodes `first_context` to before `last_context` of order k-1."""
    begins = order.trie.begins(order.k - 1, first_context, last_context)
    grams = slice(int(begins[0]), int(begins[-1]))
    p, weight = estimate_contexts(
        order.smoother,
        order.k,
        order.a.get(grams.start, grams.stop),
        begins - begins[0],
        order.lower[order.suffix.get(grams.start, grams.stop)],
        None if order.mask is None else order.mask[grams],
        order.trie.vocabulary_size - 1,
    )
    order.probability[grams] = p if len(order.probability) else 0.0
    order.log_prob[grams] = log(p)
    order.log_backoff[first_context:last_context] = log(weight)


def estimate_contexts(
    smoother: Smoother, k: int, a: IntArray, begins: IntArray, lower: FloatArray, kept: Array | None, predicted: int
) -> tuple[FloatArray, FloatArray]:
    """p(w|h) `[N]` of the n-grams of order k of C contexts, and these contexts' back-off weights `[C]`.

    a: adjusted counts `[N]`, those of a context from begins[c] to before begins[c + 1], by ascending words; begins:
    `[C + 1]`. lower: p(w|h') `[N]`. kept: bool `[N]`, False for what is left out, whose mass goes to the shorter
    context; None keeps all. predicted: how many words can be predicted.
    """
    context = np.repeat(np.arange(len(begins) - 1), np.diff(begins))  # of each n-gram
    h = contexts_of(a, begins)
    with np.errstate(divide="ignore", invalid="ignore"):  # contexts that nothing follows
        denominator = smoother.denominator(k, h)
        share = smoother.numerator(k, a) / denominator[context]
        weight = np.where(begins[1:] > begins[:-1], smoother.weight(k, h), unused_weight(smoother))
    if kept is not None:
        dropped = ~kept
        weight += np.bincount(context[dropped], share[dropped], len(weight))
        share[dropped] = 0.0
    if smoother.form is Form.interpolated:
        p = share + weight[context] * lower
    elif smoother.form is Form.scores:
        p = np.where(share > 0, share, weight[context] * lower)
    else:
        unseen_words = h.types < predicted
        share = share * discount_full_contexts(share, denominator, unseen_words, context)[context]
        seen = share > 0
        weight, scale = backoff_weights(share, np.where(seen, lower, 0.0), context, len(weight))
        p = np.where(seen, share * scale[context], weight[context] * lower)
    return p, weight


def unused_weight(smoother: Smoother) -> float:
    """The back-off weight of n-grams that nothing follows."""
    return 1.0 if smoother.form is not Form.scores else math.exp(smoother.missing)


def discount_full_contexts(
    share: FloatArray, denominator: FloatArray, unseen_words: Array, context: IntArray
) -> FloatArray:
    """The factors `[C]` of each context's shares `[N]`, by which they leave mass to the words unseen after it.

    1, except where the shares sum to more than 1 - LEAST_LEFT although there are unseen words: there the denominator is
    increased by one until they do not. SRILM does the same and credits D. Paul. denominator `[C]`; unseen_words: bool
    `[C]`; context: of each share, `[N]`.
    """
    total = np.bincount(context, share, len(denominator))
    full = (total > 1.0 - LEAST_LEFT) & unseen_words
    more = np.where(full, np.ceil(total * denominator / (1.0 - LEAST_LEFT) - denominator), 0.0)
    return np.where(full, denominator / np.maximum(denominator + more, 1.0), 1.0)


def backoff_weights(
    share: FloatArray, lower: FloatArray, context: IntArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """The back-off weights `[size]` of contexts, and the factors `[size]` that their shares are multiplied by.

    The weight is the mass that the shares `[N]` leave, over the mass that unseen words have in the shorter context;
    lower: p(w|h') of the words that were seen, `[N]`; context: of each share, `[N]`. Where all words were seen, the
    weight is 0 and the factor scales the shares to sum to one; elsewhere the factor is 1.
    """
    left = 1.0 - np.bincount(context, share, size)
    rest = 1.0 - np.bincount(context, lower, size)
    all_seen = rest < 1e-9
    weight = np.maximum(left, 0.0) / np.where(all_seen, 1.0, rest)
    return np.where(all_seen, 0.0, weight), np.where(all_seen, 1.0 / np.maximum(1.0 - left, 1e-300), 1.0)


def unigram_probabilities(counts: Counts, smoother: Smoother, a: IntArray, kept: Array) -> tuple[FloatArray, float]:
    """p(w) `[V]` from adjusted counts a `[V]`, 0 for `<s>`; and the probability of each type outside the vocabulary.

    A form that backs off gives the mass it has left to the words whose share is 0, or to all if there are none; if
    words were never seen and nothing is left for them, the denominator is raised as after any other context.
    kept: bool `[V]`, False for words that are left out, whose p is 0 and whose mass the uniform distribution gets.
    """
    h = contexts_of(a, np.array([0, len(a)]))
    denominator = smoother.denominator(1, h)
    share: FloatArray = smoother.numerator(1, a) / denominator
    predicted = kept & (np.arange(len(a)) != counts.bos)
    left_out, share = float(share[~kept].sum()), np.where(kept, share, 0.0)
    unknown = further_types(counts, smoother)
    types = predicted.sum() + unknown
    if smoother.form is Form.interpolated:
        weight = float(np.ravel(smoother.weight(1, h))[0]) + left_out
        p = np.where(predicted, share + weight / types, 0.0)
        return p, weight / types if unknown else 0.0
    if smoother.form is Form.backed_off:
        share = share * discount_full_contexts(share, denominator, h.types < types, np.zeros_like(a))[0]
        left = max(1.0 - share.sum(), 0.0)
        receivers = predicted & (share <= 0) if (predicted & (share <= 0)).any() else predicted
        share = share + np.where(receivers, left / receivers.sum(), 0.0)
    return np.where(predicted, share, 0.0), 0.0


def further_types(counts: Counts, smoother: Smoother) -> int:
    """How many types beside the words that can be predicted share the mass that the unigrams leave: 0 or 1.

    Where `<unk>` is not in the text, it is itself the unknown type, as in KenLM, and there is no other.
    """
    return int(smoother.unknown and counts.count[0].get(counts.unk, counts.unk + 1)[0] > 0)


def contexts_of(a: IntArray, begins: IntArray) -> Contexts:
    """The sums over the n-grams of each context, those from begins[c] to before begins[c + 1]; begins: `[C + 1]`."""
    sums = np.zeros((4, len(begins) - 1), dtype=np.float64)
    _sum_contexts(a, begins, sums)
    return Contexts(*sums)


@numba.njit(cache=True, nogil=True)
def _sum_contexts(a: Any, begins: Any, sums: Any) -> None:
    for c in range(len(begins) - 1):
        for i in range(begins[c], begins[c + 1]):
            sums[0, c] += a[i]
            if a[i] > 0:
                sums[min(a[i], 3), c] += 1
