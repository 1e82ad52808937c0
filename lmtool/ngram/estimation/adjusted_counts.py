"""The adjusted counts a(hw) of n-grams, and how many n-grams have each."""

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
    """a of every n-gram of order k; 0 for the unigram `<s>`, which is never predicted."""
    raw = counts.count[k - 1]
    if k == counts.order or counting is Counting.occurrences:
        if k > 1:
            return raw
        a: Array = raw.all()
    else:
        start, suffix = counts.from_start(k), counts.suffix[k - 1]
        a = storage.zeros(raw.length, whole_numbers_below(max(raw.largest(), suffix.length) + 1))
        if counting is Counting.continuations:
            for first, last in storage.pieces(suffix.length):
                # Each thread counts the suffixes among its own nodes.
                run((_count_suffixes, suffix.bits, suffix.width, first, last, *own, a) for own in cut_evenly(start))
        for first, last in storage.pieces(raw.length - start):
            a[start + first : start + last] = raw.get(start + first, start + last)
    if k == 1:
        a[counts.bos] = 0
    return Packed.of(a, storage=storage)


def revised_counts(counts: Counts, k: int, above: Packed, kept: Array, storage: Storage) -> Packed:
    """a of order k below the highest, with continuations counted, where n-grams of the order above are left out.

        a(w) = sum over v of { 1 where vw is kept, else a(vw) }        (Siivola, Hirsimaki & Virpioja 2007, sec. III)

    An n-gram that is left out backs off in all of its occurrences, of which one that is kept needs the shorter one
    about once. above: a of order k+1; kept: bool, of its n-grams.
    """
    raw, start, suffix = counts.count[k - 1], counts.from_start(k), counts.suffix[k - 1]
    a = storage.zeros(raw.length, whole_numbers_below(raw.largest() + 1))
    for first, last in storage.pieces(suffix.length):
        own = cut_evenly(start)
        above_bits = above.bits, above.width
        run((_add_revised, suffix.bits, suffix.width, *above_bits, kept, first, last, *cut, a) for cut in own)
    for first, last in storage.pieces(raw.length - start):
        a[start + first : start + last] = raw.get(start + first, start + last)
    if k == 1:
        a[counts.bos] = 0
    return Packed.of(a, storage=storage)


def count_of_counts(a: Packed) -> IntArray:
    """n_0 to n_LARGEST, `[MAX_R + 1]`: how many n-grams have each adjusted count."""
    cuts = cut_evenly(a.length)
    histograms = np.zeros((len(cuts), MAX_R + 2), dtype=np.int64)
    run((_histogram, a.bits, a.width, *cut, histograms[t]) for t, cut in enumerate(cuts))
    total: IntArray = histograms.sum(axis=0)
    return total[: MAX_R + 1]


def kenlm_count_of_counts(n: IntArray, counts: Counts, a: Packed, k: int) -> IntArray:
    """n of order k as KenLM has it: below the highest order, the n-gram that it comes to last counts with its
    occurrences in place of a.
    """
    if k == counts.order or k > len(counts.newest):
        return n
    ngram = counts.trie.find(counts.newest[None, -k:]) - counts.trie.first(k)
    return with_occurrences(n, a.at(ngram)[0], counts.count[k - 1].at(ngram)[0])


def with_occurrences(n: IntArray, a: int, count: int) -> IntArray:
    """Counts of counts n where an n-gram that was counted with a counts with its occurrences."""
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
def _count_suffixes(bits: Any, width: int, first: int, last: int, low: int, high: int, a: Any) -> None:
    for i in range(first, last):
        node = read(bits, width, i)
        if low <= node < high:
            a[node] += 1


@numba.njit(cache=True, nogil=True)
def _add_revised(
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
            a[node] += 1 if kept[i] else read(above_bits, above_width, i)
