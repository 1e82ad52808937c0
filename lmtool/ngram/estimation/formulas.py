"""The formulas of estimation: adjusted counts a(hw) and their counts of counts; probabilities and back-off weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np

from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.smoothers.base import MAX_R, Combination, Contexts, Counting, Smoother
from lmtool.ngram.tables.packed import Packed, read
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.system.arrays import Array, FloatArray, IntArray
from lmtool.system.parallel import cut_evenly, run

MIN_UNSEEN_MASS = 3e-6  # minimum mass a context leaves to words unseen after it (SRILM's Prob_Epsilon)


def adjusted_counts(
    counts: Counts,
    k: int,
    counting: Counting,
    storage: Storage,
    *,
    above: Packed | None = None,
    mask: Array | None = None,
) -> Packed:
    """Return a of every n-gram of order k; 0 for the unigram `<s>`, which is never predicted.

    above, mask: a of order k+1 and bool, of its n-grams, if some of them are left out and continuations are counted:

        a(w) = sum over v of { 1 if vw is kept, else a(vw) }           (Siivola, Hirsimaki & Virpioja 2007, sec. III)

    An n-gram that is left out backs off in all of its occurrences; one that is kept needs the shorter one about once.
    """
    raw = counts.count[k - 1]
    if k == counts.order or counting is Counting.occurrences:
        if k > 1:
            return raw
        occurrences: Array = raw[:]
        occurrences[counts.bos] = 0
        return Packed.of(occurrences, storage=storage)
    start, suffix = counts.from_start(k), counts.suffix[k - 1]
    a = storage.zeros(raw.length, whole_numbers_below(max(raw.largest(), suffix.length) + 1))
    above = above or suffix
    for first, last in storage.pieces(suffix.length) if counting is Counting.continuations else ():
        # Each thread counts the suffixes among its own nodes, so that no two threads write to one count. The plain form
        # is np.bincount of the suffixes.
        packed = (suffix.bits, suffix.width), (above.bits, above.width)
        run((_count_suffixes, *packed, mask, first, last, own, a) for own in cut_evenly(start))
    for first, last in storage.pieces(raw.length - start):
        a[start + first : start + last] = raw[start + first : start + last]
    if k == 1:
        a[counts.bos] = 0
    return Packed.of(a, storage=storage)


Observations = Packed | FloatArray  # a(hw) `[M]`; or these and the tables of n-grams, float64 `[M, 2]`


def observations(counts: Counts, smoother: Smoother, storage: Storage) -> Iterator[Observations]:
    """Yield a of all n-grams of each order, and their tables if the smoother has them."""
    if smoother.counting is Counting.tables:
        yield from smoother.tables(counts)
        return
    for k in range(1, counts.order + 1):
        yield adjusted_counts(counts, k, smoother.counting, storage)


def fit_order(counts: Counts, smoother: Smoother, k: int, a: Observations) -> None:
    """Estimate the smoother's parameters of order k from the counts of counts of a; with tables there are none.

    KenLM counts them, below the highest order, with the occurrences of the n-gram that it sorts last instead of its a.
    """
    if not isinstance(a, Packed):
        return
    cuts = cut_evenly(a.length)
    histograms = np.zeros((len(cuts), MAX_R + 2), dtype=np.int64)
    run((_histogram, a.bits, a.width, *cut, histograms[t]) for t, cut in enumerate(cuts))
    n: IntArray = histograms.sum(axis=0)[: MAX_R + 1]
    n_kenlm = n.copy()
    if k < counts.order and k <= len(counts.newest):
        ngram = counts.trie.find(counts.newest[None, -k:]) - counts.trie.first(k)
        for r, change in ((a[ngram][0], -1), (counts.count[k - 1][ngram][0], 1)):
            if r <= MAX_R:
                n_kenlm[r] += change
    smoother.fit(k, n, n_kenlm)


@numba.njit(cache=True, nogil=True)
def _histogram(bits: Any, width: int, first: int, last: int, counts: Any) -> None:
    most = len(counts) - 1
    for i in range(first, last):
        counts[min(read(bits, width, i), most)] += 1


@numba.njit(cache=True, nogil=True)
def _count_suffixes(suffix: Any, above: Any, mask: Any, first: int, last: int, own: Any, a: Any) -> None:
    (bits, width), (above_bits, above_width), (low, high) = suffix, above, own
    for i in range(first, last):
        node = read(bits, width, i)
        if low <= node < high:
            if mask is None:
                a[node] += 1
            else:
                a[node] += 1 if mask[i] else read(above_bits, above_width, i)


def estimate_contexts(
    smoother: Smoother, k: int, a: Array, begins: IntArray, lower: FloatArray, mask: Array | None, predicted: int
) -> tuple[FloatArray, FloatArray]:
    """Return p(w|h) `[N]` of the n-grams of order k of C contexts, and these contexts' back-off weights `[C]`.

    a: adjusted counts `[N]`; those of context c are at begins[c] to before begins[c + 1], by ascending words;
    begins: `[C + 1]`.
    lower: p(w|h') `[N]`.
    mask: bool `[N]`, False for n-grams that are left out, whose mass goes to the shorter context; None keeps all.
    predicted: the number of words that can be predicted.
    """
    context = np.repeat(np.arange(len(begins) - 1), np.diff(begins))  # context of each n-gram
    h = contexts_of(a, begins)
    weight_of_unfollowed = math.exp(smoother.missing) if smoother.combination is Combination.scores else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):  # contexts that nothing follows
        denominator = smoother.denominator(k, h)
        share = smoother.numerator(k, a) / denominator[context]
        weight = np.where(begins[1:] > begins[:-1], smoother.weight(k, h), weight_of_unfollowed)
    if mask is not None:
        leave_out(share, weight, context, mask)
    if smoother.combination is Combination.interpolated:
        p = share + weight[context] * lower
    elif smoother.combination is Combination.scores:
        p = np.where(share > 0, share, weight[context] * lower)
    else:
        unseen_words = h.types < predicted
        if smoother.combination is Combination.seen_interpolated:
            share = interpolate_seen(share, weight, lower, context, unseen_words)
        share = share * discount_full_contexts(share, denominator, unseen_words, context)[context]
        seen = share > 0
        weight, scale = backoff_weights(share, np.where(seen, lower, 0.0), context, len(weight))
        p = np.where(seen, share * scale[context], weight[context] * lower)
    return p, weight


def leave_out(share: FloatArray, weight: FloatArray, context: IntArray, mask: Array) -> None:
    """Move the shares `[N]` of n-grams outside the mask, `[N]`, to the weights `[C]` of the shorter contexts `[N]`."""
    dropped = ~mask
    weight += np.bincount(context[dropped], share[dropped], len(weight))
    share[dropped] = 0.0


def interpolate_seen(
    share: FloatArray, weight: FloatArray, lower: Any, context: IntArray, unseen_words: Array
) -> FloatArray:
    """Return the shares `[N]` above 0, interpolated with p(w|h') `[N]` by the weights `[C]`, unless that leaves less
    than MIN_UNSEEN_MASS to words unseen after a context, as in SRILM. The rest: as in discount_full_contexts.
    """
    mixed = np.where(share > 0, share + weight[context] * lower, 0.0)
    full = (np.bincount(context, mixed, len(weight)) > 1.0 - MIN_UNSEEN_MASS) & unseen_words
    interpolated: FloatArray = np.where(full[context], share, mixed)
    return interpolated


def discount_full_contexts(
    share: FloatArray, denominator: FloatArray, unseen_words: Array, context: IntArray
) -> FloatArray:
    """Return a factor for each context's shares `[N]`, `[C]`, so that they leave mass to the words unseen after it.

    The factor is 1, unless the shares sum to more than 1 - MIN_UNSEEN_MASS although there are unseen words: then the
    denominator is increased by one until they do not, as in SRILM, which credits D. Paul. denominator `[C]`;
    unseen_words: bool `[C]`. context: the context of each share, `[N]`.
    """
    total = np.bincount(context, share, len(denominator))
    full = (total > 1.0 - MIN_UNSEEN_MASS) & unseen_words
    more = np.where(full, np.ceil(total * denominator / (1.0 - MIN_UNSEEN_MASS) - denominator), 0.0)
    return np.where(full, denominator / np.maximum(denominator + more, 1.0), 1.0)


def backoff_weights(
    share: FloatArray, lower: FloatArray, context: IntArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """Return the back-off weights `[size]` of contexts, and factors `[size]` for their shares.

    The weight is the mass that the shares `[N]` leave, divided by the mass that unseen words have in the shorter
    context. lower: p(w|h') of the words that were seen, `[N]`. context: the context of each share, `[N]`. If all words
    were seen, the weight is 0 and the factor scales the shares to sum to one; otherwise the factor is 1.
    """
    left = 1.0 - np.bincount(context, share, size)
    rest = 1.0 - np.bincount(context, lower, size)
    all_seen = rest < 1e-9
    weight = np.maximum(left, 0.0) / np.where(all_seen, 1.0, rest)
    return np.where(all_seen, 0.0, weight), np.where(all_seen, 1.0 / np.maximum(1.0 - left, 1e-300), 1.0)


def unigram_probabilities(counts: Counts, smoother: Smoother, a: Array, mask: Array) -> tuple[FloatArray, float]:
    """Return p(w) `[V]` from adjusted counts a `[V]`, 0 for `<s>`, and p of each type outside the vocabulary.

    A smoother that backs off gives the remaining mass to the words whose share is 0, or to all if there are none. If
    there are unseen words and no mass remains, the denominator is increased as after any other context.
    mask: bool `[V]`, False for words that are left out: their p is 0, and the uniform distribution gets their mass.
    """
    h = contexts_of(a, np.array([0, len(a)]))
    denominator = smoother.denominator(1, h)
    share: FloatArray = smoother.numerator(1, a) / denominator
    predicted = mask & (np.arange(len(a)) != counts.bos)
    left_out, share = float(share[~mask].sum()), np.where(mask, share, 0.0)
    unknown = num_unseen_types(counts, smoother)
    types = predicted.sum() + unknown
    if smoother.combination is Combination.interpolated or smoother.interpolates_unigrams:
        weight = float(np.ravel(smoother.weight(1, h))[0]) + left_out
        p = np.where(predicted, share + weight / types, 0.0)
        return p, weight / types if unknown else 0.0
    if smoother.combination is not Combination.scores:
        whole, unseen_words = np.zeros_like(a), h.types < types
        if smoother.combination is Combination.seen_interpolated:
            share = interpolate_seen(share, np.ravel(smoother.weight(1, h)), 1 / types, whole, unseen_words)
        share = share * discount_full_contexts(share, denominator, unseen_words, whole)[0]
        left = max(1.0 - share.sum(), 0.0)
        receivers = predicted & (share <= 0) if (predicted & (share <= 0)).any() else predicted
        share = share + np.where(receivers, left / receivers.sum(), 0.0)
    return np.where(predicted, share, 0.0), 0.0


def num_unseen_types(counts: Counts, smoother: Smoother) -> int:
    """Return 1 if an unseen type, `<unk>` if it is not in the text, has a share of the unigrams' mass; 0 if closed."""
    return int(smoother.unknown and counts.unk != counts.bos and counts.count[0][counts.unk : counts.unk + 1][0] > 0)


def contexts_of(a: Array, begins: IntArray) -> Contexts:
    """Return the sums over the n-grams of each context, those from begins[c] to before begins[c + 1].

    a: adjusted counts int64 `[N]`, or these and tables float64 `[N, 2]`; begins: `[C + 1]`.
    """
    sums = np.zeros((4, len(begins) - 1), dtype=np.float64)
    if a.ndim == 2:
        _sum_tables(a, begins, sums)
        return Contexts(*sums)
    _sum_contexts(a, begins, sums)
    total, ones, twos, more = sums
    return Contexts(total, ones + twos + more, ones, twos)


@numba.njit(cache=True, nogil=True)
def _sum_contexts(a: Any, begins: Any, sums: Any) -> None:
    # One pass over the counts; four np.add.reduceat would read them four times, with a temporary array each.
    for c in range(len(begins) - 1):
        for i in range(begins[c], begins[c + 1]):
            sums[0, c] += a[i]
            if a[i] > 0:
                sums[min(a[i], 3), c] += 1


@numba.njit(cache=True, nogil=True)
def _sum_tables(a: Any, begins: Any, sums: Any) -> None:
    for c in range(len(begins) - 1):
        for i in range(begins[c], begins[c + 1]):
            sums[0, c] += a[i, 0]
            sums[1, c] += a[i, 1]
