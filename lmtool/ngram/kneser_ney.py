"""Interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998, section 3), counts -> back-off table.

    p(w|h) = (a(hw) - D(a(hw))) / a(h.) + gamma(h) p(w|h')                                       (their eq. 24)
    gamma(h) = (D1 N1(h.) + D2 N2(h.) + D3+ N3+(h.)) / a(h.)                                     (eq. 26)

a is the count in the highest order and for n-grams that begin with `<s>`; below it is the number of distinct words
that stand before the n-gram (Kneser & Ney 1995). a(h.) sums it over the words after h, N_r(h.) counts those with
a = r. h' is h without its first word; the unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

import numpy as np

from lmtool.errors import UserError
from lmtool.model import FloatArray, IntArray
from lmtool.ngram.counts import Counts
from lmtool.ngram.table import BackoffTable, TableOrder, log

# Used where a text is too small or too odd to estimate discounts from.
FALLBACK = (0.5, 1.0, 1.5)


def modified_kneser_ney(
    counts: Counts, *, discounts: list[list[float]] | None = None, like_kenlm: bool = True
) -> BackoffTable:
    """Estimate the model.

    discounts: [D1, D2, D3+] for each order from 1 to n; None to estimate them. like_kenlm: estimate them as
    KenLM does, which misses one unigram (see `count_of_counts`), so that the models are equal.
    Raises UserError where the given discounts are not as many as the orders.
    """
    order = len(counts.orders)
    if discounts is not None and len(discounts) != order:
        raise UserError(f"smoother.discounts: {len(discounts)} triples given, order {order} needs {order}")
    notes: list[str] = []
    probability, unseen = np.empty(0), 0.0
    tables: list[TableOrder] = []
    probabilities: list[FloatArray] = []
    backoffs: list[FloatArray] = []
    for k in range(1, order + 1):
        adjusted = adjusted_counts(counts, k)
        if discounts is not None:
            discount = np.array([0.0, *discounts[k - 1]])
        else:
            left_out = counts.newest_word if like_kenlm and k == 1 and order > 1 else None
            discount = estimate_discounts(count_of_counts(adjusted, left_out), k, notes)
        taken = np.minimum(discount[np.minimum(adjusted, 3)], adjusted)  # [M]
        if k == 1:
            probability, unseen = unigrams(counts, adjusted, taken)
        else:
            context = counts.context(k)
            contexts = len(counts.orders[k - 2].keys)
            total = np.bincount(context, adjusted, contexts)  # a(h.)
            gamma = np.bincount(context, taken, contexts) / np.maximum(total, 1)
            # A context that nothing follows leaves all to the lower order.
            backoffs.append(np.where(total > 0, gamma, 1.0))
            lower = probabilities[-1][counts.orders[k - 1].suffix]
            probability = (adjusted - taken) / total[context] + gamma[context] * lower
        probabilities.append(probability)
    backoffs.append(np.ones(len(counts.orders[-1].keys)))
    for found, kept, backoff in zip(counts.orders, probabilities, backoffs, strict=True):
        tables.append(TableOrder(found.keys, log(kept), log(backoff)))
    with np.errstate(divide="ignore"):
        return BackoffTable(tables, counts.vocabulary_size, counts.bos, float(np.log(unseen)), tuple(notes))


def adjusted_counts(counts: Counts, k: int) -> IntArray:
    """a of every n-gram of order k, `[M]`; 0 for the unigram `<s>`, which is never predicted."""
    found = counts.orders[k - 1]
    adjusted = found.count
    if k < len(counts.orders):
        extensions = np.bincount(counts.orders[k].suffix, minlength=len(found.keys))
        adjusted = np.where(found.from_start, found.count, extensions)
    if k == 1:
        adjusted = adjusted.copy()
        adjusted[counts.bos] = 0
    return adjusted


def count_of_counts(adjusted: IntArray, left_out: int | None) -> IntArray:
    """n_1 to n_4, `[5]` with n_0 unused: how many n-grams have each adjusted count.

    left_out: an n-gram that is not counted. KenLM's estimator never counts the last unigram of its own order,
    which is the word that was the last to be seen for the first time.
    """
    counted = np.bincount(np.minimum(adjusted, 5), minlength=6)
    if left_out is not None:
        counted[min(int(adjusted[left_out]), 5)] -= 1
    return counted[:5]


def estimate_discounts(n: IntArray, k: int, notes: list[str]) -> FloatArray:
    """D(0) = 0, D1, D2, D3+ from the counts of counts (Chen & Goodman 1998, eq. 25).

    Where one of n_1 to n_4 is 0 or a discount falls out of [0, r], as on very small texts and on n-grams of
    letters, FALLBACK is used for the order and a note says so.
    """
    if (n[1:5] > 0).all():
        y = n[1] / (n[1] + 2 * n[2])
        r = np.arange(1, 4)
        estimated = np.concatenate([[0.0], r - (r + 1) * y * n[2:5] / n[1:4]])
        if (estimated >= 0).all() and (estimated[1:] <= r).all():
            return estimated
    notes.append(
        f"order {k}: counts of counts {', '.join(map(str, n[1:5]))} give no discounts, "
        f"{', '.join(map(str, FALLBACK))} are used"
    )
    return np.array([0.0, *FALLBACK])


def unigrams(counts: Counts, adjusted: IntArray, taken: FloatArray) -> tuple[FloatArray, float]:
    """Unigram probabilities `[V]` (0 for `<s>`) and what is left for a type that is in no vocabulary.

    The uniform distribution is over the V-1 words that can be predicted and one unknown type, as KenLM and
    SRILM have it.
    """
    types = counts.vocabulary_size  # without <s>, with the unknown
    total = adjusted.sum()
    uniform = float(taken.sum() / total / types)
    probability = (adjusted - taken) / total + uniform
    probability[counts.bos] = 0.0
    return probability, uniform
