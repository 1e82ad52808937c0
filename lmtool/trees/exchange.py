"""Classes of words by exchange: Kneser & Ney (1993); Martin, Liermann & Ney (1998), "Algorithms for bigram and trigram
word clustering".

Each word in turn is taken out of its class and put into the one that gives the highest likelihood to the bigram model
p(w|v) = p(w|c(w)) p(c(w)|c(v)), until a pass moves no word. Up to a constant the log-likelihood is N times the average
mutual information that Brown et al. (1992) maximize by merging (see lmtool.trees._brown_kernels, F(n) = n log n):

    L = sum over x, y of F(n(x, y)) - sum over x of F(n(x, .)) - sum over y of F(n(., y))

so that exchange can continue after merging. Legend: C classes; W words; n `[2, C, C]`: n(x, y) and n(y, x), f: F of
these; sums `[2, C]`: of the rows of n. The plain form recomputes L for each word and class; here a word's gain is
computed from the classes of its neighbors, O(C) steps for each. tests/trees/test_brown.py compares both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import IntArray
from lmtool.trees._brown_kernels import f_of, f_table
from lmtool.trees.brown import Bigrams, neighbors

compiled = numba.njit(cache=True, nogil=True)

MIN_GAIN = 1e-6  # nats: minimum gain to move a word, so that rounding errors cannot make it oscillate


class Exchanged(NamedTuple):
    """The result of an exchange. class_of: the class of each word, `[W]`. information: average mutual information of
    the classes of neighbors, in nats per bigram. passes: number of passes over the words.
    """

    class_of: IntArray
    information: float
    passes: int


def exchange(
    bigrams: Bigrams, class_of: IntArray, classes: int, movable: IntArray, closed: npt.NDArray[np.bool_], passes: int
) -> Exchanged:
    """Improve the classes class_of `[W]` of the words of some bigrams.

    classes: their number, C. movable: the words that may move, in the order in which they are tried. closed: bool
    `[C]`, classes that no word may join or leave. passes: maximum number of passes. A class keeps its last word.
    """
    words = len(class_of)
    total = int(bigrams.counts.sum())
    if not total:
        return Exchanged(class_of.copy(), 0.0, 0)
    same = bigrams.first == bigrams.second
    twice = np.zeros(words, dtype=np.int64)
    twice[bigrams.first[same]] = bigrams.counts[same]
    first, second, counts = (part[~same] for part in bigrams)
    after, before = neighbors(first, second, counts, words), neighbors(second, first, counts, words)
    classes_of_words = class_of.astype(np.int64)
    n = np.zeros((2, classes, classes), dtype=np.int64)
    np.add.at(n[0], (classes_of_words[bigrams.first], classes_of_words[bigrams.second]), bigrams.counts)
    n[1] = n[0].T
    f, sums, table = n * np.log(np.maximum(n, 1)), n.sum(axis=2), f_table()
    needed = _exchange(after, before, twice, classes_of_words, movable, closed, passes, (n, f, sums, table))
    log_likelihood = float(f[0].sum()) - sum(f_of(int(x), table) for x in sums.ravel())
    return Exchanged(classes_of_words, (log_likelihood + f_of(total, table)) / total, int(needed))


@compiled
def _exchange(
    after: Any, before: Any, twice: Any, class_of: Any, movable: Any, closed: Any, passes: int, tables: Any
) -> int:
    """Move words, in class_of `[W]`, until a pass moves none; return the number of passes.

    after: the other words that follow each word, in the form that `neighbors` returns. before: likewise the words
    before it. twice: number of times that a word follows itself, `[W]`.
    """
    classes = len(closed)
    size = np.zeros(classes, np.int64)
    for c in class_of:
        size[c] += 1
    count = np.zeros((2, classes), np.int64)  # counts of the classes after and before the word
    near = np.empty((2, classes), np.int64)  # classes with a count, `used` on each side
    used = np.zeros(2, np.int64)
    total = np.zeros(2, np.int64)
    gain = np.empty(classes)
    done = 0
    while done < passes:
        done += 1
        moved = 0
        for word in movable:
            old = class_of[word]
            if closed[old] or size[old] == 1:
                continue
            for side, (starts, words) in enumerate((after, before)):
                _read_neighbors(side, words[starts[word] : starts[word + 1]], class_of, count, near, used, total)
            total += twice[word]
            _move(-1, old, count, near, used, total, twice[word], tables)
            _gains(count, near, used, total, twice[word], tables, gain)
            new = old
            for c in range(classes):
                if gain[c] > gain[new] + MIN_GAIN and not closed[c]:
                    new = c
            _move(1, new, count, near, used, total, twice[word], tables)
            if new != old:
                class_of[word] = new
                size[old] -= 1
                size[new] += 1
                moved += 1
            for side in range(2):
                for i in range(used[side]):
                    count[side, near[side, i]] = 0
        if moved == 0:
            break
    return done


@compiled
def _read_neighbors(side: int, words: Any, class_of: Any, count: Any, near: Any, used: Any, total: Any) -> None:
    """Fill in one side of a word's neighbors from a list of words and counts, `[E, 2]`; count is all 0 before."""
    used[side] = 0
    total[side] = 0
    for e in range(len(words)):
        c = class_of[words[e, 0]]
        if count[side, c] == 0:
            near[side, used[side]] = c
            used[side] += 1
        count[side, c] += words[e, 1]
        total[side] += words[e, 1]


@compiled
def _move(sign: int, c: int, count: Any, near: Any, used: Any, total: Any, twice: int, tables: Any) -> None:
    """Put the word into class c (sign 1), or take it out (-1)."""
    n, f, sums, table = tables
    for side in range(2):
        for i in range(used[side]):
            other = near[side, i]
            n[side, c, other] += sign * count[side, other]
            n[1 - side, other, c] += sign * count[side, other]
        sums[side, c] += sign * total[side]
    n[0, c, c] += sign * twice
    n[1, c, c] += sign * twice
    for side in range(2):
        for i in range(used[side]):
            other = near[side, i]
            f[side, c, other] = f_of(n[side, c, other], table)
            f[1 - side, other, c] = f[side, c, other]
    f[0, c, c] = f_of(n[0, c, c], table)
    f[1, c, c] = f[0, c, c]


@compiled
def _gains(count: Any, near: Any, used: Any, total: Any, twice: int, tables: Any, gain: Any) -> None:
    """Write the gain in L if the word joins each of the classes to gain `[C]`."""
    n, f, sums, table = tables
    for c in range(len(gain)):
        margins = 0.0
        for side in range(2):
            margins += f_of(sums[side, c] + total[side], table) - f_of(sums[side, c], table)
        both = n[0, c, c] + count[0, c] + count[1, c] + twice
        gain[c] = f_of(both, table) - f[0, c, c] - margins
    # F of the cells that the word would enter beside its neighbors' classes, for all classes c at once.
    for side in range(2):
        for i in range(used[side]):
            other = near[side, i]
            more = count[side, other]
            row, f_row = n[1 - side, other], f[1 - side, other]  # contiguous in c: loops are vectorized
            if sums[1 - side, other] + more < len(table):
                for c in range(len(gain)):
                    gain[c] += table[row[c] + more] - f_row[c]
            else:
                for c in range(len(gain)):
                    gain[c] += f_of(row[c] + more, table) - f_row[c]
            gain[other] -= f_of(row[other] + more, table) - f_row[other]  # n(c, c) is counted above
