"""Adjusted counts a(hw) of n-grams, and their counts of counts."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.smoothers.base import MAX_R, Counting
from lmtool.ngram.tables.packed import Packed, read
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.system.arrays import IntArray
from lmtool.system.parallel import cut_evenly, run

Array = npt.NDArray[Any]


def adjusted_counts(counts: Counts, k: int, counting: Counting, storage: Storage) -> Packed:
    """Return a of every n-gram of order k; 0 for the unigram `<s>`, which is never predicted."""
    raw = counts.count[k - 1]
    if k < counts.order and counting is not Counting.occurrences:
        return _lower_order(counts, k, storage, continuations=counting is Counting.continuations)
    if k > 1:
        return raw
    a: Array = raw.all()
    a[counts.bos] = 0
    return Packed.of(a, storage=storage)


def revised_counts(counts: Counts, k: int, above: Packed, kept: Array, storage: Storage) -> Packed:
    """Return a of order k below the highest, with continuations counted, if n-grams of the order above are left out.

        a(w) = sum over v of { 1 if vw is kept, else a(vw) }           (Siivola, Hirsimaki & Virpioja 2007, sec. III)

    An n-gram that is left out backs off in all of its occurrences; one that is kept needs the shorter one about once.
    above: a of order k+1; kept: bool, of its n-grams.
    """
    return _lower_order(counts, k, storage, continuations=True, above=above, kept=kept)


def _lower_order(
    counts: Counts,
    k: int,
    storage: Storage,
    *,
    continuations: bool,
    above: Packed | None = None,
    kept: Array | None = None,
) -> Packed:
    """Return a of order k below the highest: c of n-grams that begin with `<s>`; of others, 0 or continuations."""
    raw, start, suffix = counts.count[k - 1], counts.from_start(k), counts.suffix[k - 1]
    a = storage.zeros(raw.length, whole_numbers_below(max(raw.largest(), suffix.length) + 1))
    above = above or suffix
    for first, last in storage.pieces(suffix.length) if continuations else ():
        # Each thread counts the suffixes among its own nodes, so that no two threads write to one count. The plain form
        # is np.bincount of the suffixes.
        packed = suffix.bits, suffix.width, above.bits, above.width
        run((_count_suffixes, *packed, kept, first, last, *own, a) for own in cut_evenly(start))
    for first, last in storage.pieces(raw.length - start):
        a[start + first : start + last] = raw.get(start + first, start + last)
    if k == 1:
        a[counts.bos] = 0
    return Packed.of(a, storage=storage)


def count_of_counts(a: Packed) -> IntArray:
    """Return n_0 to n_MAX_R, `[MAX_R + 1]`: the number of n-grams with each adjusted count."""
    cuts = cut_evenly(a.length)
    histograms = np.zeros((len(cuts), MAX_R + 2), dtype=np.int64)
    run((_histogram, a.bits, a.width, *cut, histograms[t]) for t, cut in enumerate(cuts))
    total: IntArray = histograms.sum(axis=0)
    return total[: MAX_R + 1]


def kenlm_count_of_counts(n: IntArray, counts: Counts, a: Packed, k: int) -> IntArray:
    """Return n of order k as KenLM counts it: below the highest order, with the occurrences of the n-gram that it sorts
    last instead of its a.
    """
    if k == counts.order or k > len(counts.newest):
        return n
    ngram = counts.trie.find(counts.newest[None, -k:]) - counts.trie.first(k)
    return with_occurrences(n, a.at(ngram)[0], counts.count[k - 1].at(ngram)[0])


def with_occurrences(n: IntArray, a: int, count: int) -> IntArray:
    """Return counts of counts n in which an n-gram counts with its occurrences `count` instead of a."""
    n = n.copy()
    for r, change in ((a, -1), (count, 1)):
        if r <= MAX_R:
            n[r] += change
    return n


@numba.njit(cache=True, nogil=True)
def _histogram(bits: Any, width: int, first: int, last: int, counts: Any) -> None:
    most = len(counts) - 1
    for i in range(first, last):
        counts[min(read(bits, width, i), most)] += 1


@numba.njit(cache=True, nogil=True)
def _count_suffixes(
    bits: Any,
    width: int,
    above_bits: Any,
    above_width: int,
    kept: Any,
    first: int,
    last: int,
    low: int,
    high: int,
    a: Any,
) -> None:
    for i in range(first, last):
        node = read(bits, width, i)
        if low <= node < high:
            if kept is None:
                a[node] += 1
            else:
                a[node] += 1 if kept[i] else read(above_bits, above_width, i)
