"""Derive the n-grams of a partition, order by order, from those of the highest order.

A partition has all n-grams whose word before the last is in some set of words. They are sorted by their context from
its last word to its first, and then by the word that follows, so that the n-grams of a context are consecutive in every
order, with ascending words, as in lmtool.ngram.estimation.estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.ngram.counting.radix_sort import sort_keys
from lmtool.ngram.tables.packed import width_of
from lmtool.system.arrays import IntArray

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Level:
    """N n-grams of order k in C contexts.

    words: k arrays `[N]`, from the first word to the last. context: int64 `[N]`, the number of each one's context.
    count: int64 `[N]`, how often it occurs. preceding: int64 `[N]`, the number of n-grams of the next order that end in
    it, which is the number of distinct words before it. shorter: int64 `[N]`, its last k-1 words among the n-grams of
    the order below; None in order 2. real: bool `[N]`, False if it begins with two `<s>`, which only fill up a context.
    """

    words: list[Array]
    context: IntArray
    count: IntArray
    preceding: IntArray
    shorter: IntArray | None
    real: npt.NDArray[np.bool_]

    @property
    def order(self) -> int:
        """k."""
        return len(self.words)

    @property
    def begins(self) -> IntArray:
        """Where the n-grams of each context begin and where the last ones end, int64 `[C + 1]`."""
        if not len(self.context):
            return np.zeros(1, dtype=np.int64)
        return np.concatenate([[0], np.flatnonzero(np.diff(self.context)) + 1, [len(self.context)]])


def levels(words: list[Array], count: IntArray, bos: int) -> list[Level]:
    """Return the levels of orders n to 2.

    words: n >= 2 arrays `[R]` of n-grams in any order, of which several may be equal; contexts at the start of a
    sentence are filled up with `<s>`, whose id is `bos`. count: int64 `[R]`.
    """
    width = width_of(bos)
    order = len(words)
    place = by_context(words, width)
    words = [column[place] for column in words]
    first = changes(words)
    count = np.add.reduceat(count[place], np.flatnonzero(first)) if len(count) else count
    words = [column[first] for column in words]
    preceding = np.zeros(len(count), dtype=np.int64)
    made: list[Level] = []
    for k in range(order, 1, -1):
        context = np.cumsum(changes(words[:-1])) - 1
        real = np.ones(len(count), dtype=bool) if k == 2 else (words[0] != bos) | (words[1] != bos)
        if k == 2:
            made.append(Level(words, context, count, preceding, None, real))
            break
        group = np.cumsum(changes(words[1:-1])).astype(np.uint64)  # of the shorter context
        keys = (group << np.uint64(width)) | words[-1].astype(np.uint64)
        keys, place = sort_keys(keys, np.arange(len(keys), dtype=np.uint32), width + width_of(len(keys)))
        first = changes([keys])
        shorter = np.empty(len(keys), dtype=np.int64)
        shorter[place] = np.cumsum(first) - 1
        made.append(Level(words, context, count, preceding, shorter, real))
        words = [column[place[first]] for column in words[1:]]
        preceding = np.bincount(shorter, minlength=len(words[0]))
        count = np.bincount(shorter, weights=count, minlength=len(words[0])).astype(np.int64)  # exact below 2^53
    return made


def by_context(words: list[Array], width: int) -> Array:
    """Return the order of n-grams, uint32 `[N]`, by their context from its last word to its first, then by their last
    word; equal ones keep their order. words: k arrays `[N]`, of numbers of `width` bits.
    """
    place = np.arange(len(words[0]), dtype=np.uint32)
    for column in (words[-1], *words[:-1]):  # the last sort decides
        _, place = sort_keys(column[place].astype(np.uint64), place, width)
    return place


def changes(columns: list[Array]) -> npt.NDArray[np.bool_]:
    """Return which rows of columns `[N]` differ from the row before them, bool `[N]`; the first one does."""
    changed = np.ones(len(columns[0]), dtype=bool)
    if len(changed):
        changed[1:] = False
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed
