"""Merge clusters of words with the least loss of average mutual information of neighbors: Brown et al. (1992).

A text with n(x, y) bigrams of a word of cluster x and one of cluster y, N in all, has the average mutual information

    sum n(x, y) / N log(n(x, y) N / (n(x, .) n(., y))) = (sum F(n(x, y)) - sum F(n(x, .)) - sum F(n(., y)) + F(N)) / N

where F(n) = n log n. The loss when a and b merge is therefore a sum of G(x, y) = F(x + y) - F(x) - F(y):

    N loss(a, b) = G(n(a, .), n(b, .)) + G(n(., a), n(., b))                                      "margins"
                   - sum over c other than a and b of G(n(a, c), n(b, c)) + G(n(c, a), n(c, b))   "joint"
                   - F(n(a, a) + n(a, b) + n(b, a) + n(b, b)) + F of each of the four             "joint"

G(x, 0) = 0: only common neighbors c count. The plain form computes the loss of every pair in every step, O(C^3); here
both tables are updated as words are added and clusters merge, O(C^2). tests/trees/test_brown.py compares both. Losses
are in nats times N. Legend: C slots for clusters, those in use first; W words, in the order in which they are added.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

compiled = numba.njit(cache=True, nogil=True)

TABLE = 1 << 18  # F is tabulated for counts below this


def f_table() -> Any:
    """Tabulate F(n) = n log n, `[TABLE]`."""
    n = np.arange(TABLE, dtype=np.float64)
    n[2:] *= np.log(n[2:])
    n[1] = 0
    return n


@compiled
def f_of(n: int, table: Any) -> Any:
    return table[n] if n < len(table) else n * math.log(n)


@compiled
def _name_of(word: int, joined_to: Any) -> int:
    """Return the word that names the cluster of `word`; shorten the path to it (a disjoint-set forest)."""
    while joined_to[word] != word:
        joined_to[word] = joined_to[joined_to[word]]
        word = joined_to[word]
    return word


@compiled
def _margins_of(a: int, used: int, sums: Any, margins: Any, table: Any) -> None:
    """Compute row and column a of `margins`."""
    first, second = sums[0, a], sums[1, a]
    f_both = f_of(first, table) + f_of(second, table)
    for b in range(used):
        joined = f_of(first + sums[0, b], table) + f_of(second + sums[1, b], table)
        margins[a, b] = joined - f_both - f_of(sums[0, b], table) - f_of(sums[1, b], table)
        margins[b, a] = margins[a, b]


@compiled
def _joint_side(a: int, used: int, n_side: Any, f_side: Any, sums_side: Any, row: Any, table: Any) -> None:
    """Add to `row` `[C]`, for each b, the sum over c other than a and b of G(n_side[a, c], n_side[b, c])."""
    neighbors = np.empty(used, dtype=np.int64)
    size, largest = 0, 0
    f_a = 0.0
    for c in range(used):
        if n_side[a, c] and c != a:
            neighbors[size] = c
            size += 1
            f_a += f_side[a, c]
            largest = max(largest, n_side[a, c])
    for b in range(used):
        # Without branches, since G(x, 0) = 0; c = b is subtracted afterward.
        total = -f_a
        if largest + sums_side[b] < len(table):
            for i in range(size):
                c = neighbors[i]
                total += table[n_side[a, c] + n_side[b, c]] - f_side[b, c]
        else:
            for i in range(size):
                c = neighbors[i]
                total += f_of(n_side[a, c] + n_side[b, c], table) - f_side[b, c]
        if b != a and n_side[a, b]:
            total -= f_of(n_side[a, b] + n_side[b, b], table) - f_side[a, b] - f_side[b, b]
        row[b] += total


@compiled
def _joint_of(a: int, used: int, n: Any, f: Any, sums: Any, joint: Any, table: Any) -> None:
    """Compute row and column a of `joint`."""
    row = np.zeros(used)
    _joint_side(a, used, n[0], f[0], sums[0], row, table)
    _joint_side(a, used, n[1], f[1], sums[1], row, table)
    for b in range(used):
        both = n[0, a, a] + n[0, a, b] + n[0, b, a] + n[0, b, b]
        joint[a, b] = row[b] + f_of(both, table) - f[0, a, a] - f[0, a, b] - f[0, b, a] - f[0, b, b]
        joint[b, a] = joint[a, b]


@compiled
def _add_side(n_side: Any, new: int, joint: Any, table: Any) -> None:
    """Update `joint` for pairs of clusters that are both neighbors of the new one. n_side: `[C]`, their counts."""
    neighbors = np.empty(new, dtype=np.int64)
    size = 0
    for a in range(new):
        if n_side[a]:
            neighbors[size] = a
            size += 1
    for i in range(size):
        a = neighbors[i]
        for j in range(i):
            b = neighbors[j]
            more = f_of(n_side[a] + n_side[b], table) - f_of(n_side[a], table) - f_of(n_side[b], table)
            joint[a, b] += more
            joint[b, a] += more


@compiled
def _f_of(a: int, used: int, n: Any, f: Any, table: Any) -> None:
    """Compute rows and columns a of `f`."""
    for side in range(2):
        for b in range(used):
            f[side, a, b] = f_of(n[side, a, b], table)
            f[1 - side, b, a] = f[side, a, b]


@compiled
def add(new: int, n: Any, f: Any, sums: Any, joint: Any, margins: Any, table: Any) -> None:
    """Add the cluster in slot `new`, the first free one, with row and column of n(x, y) already filled in.

    n: `[2, C, C]`, n(x, y) and n(y, x). f: F of these. sums: `[2, C]`, of their rows. joint, margins: `[C, C]`.
    """
    used = new + 1
    _f_of(new, used, n, f, table)
    for side in range(2):
        sums[side, new] = n[side, new, new]
        for a in range(new):
            sums[side, new] += n[side, new, a]
            sums[side, a] += n[1 - side, new, a]
        _add_side(n[1 - side, new], new, joint, table)
    for a in range(new):
        if n[0, new, a] or n[1, new, a]:
            _margins_of(a, new, sums, margins, table)
    _margins_of(new, used, sums, margins, table)
    _joint_of(new, used, n, f, sums, joint, table)


@compiled
def _merge_side(s_side: Any, t_side: Any, s: int, t: int, used: int, joint: Any, table: Any) -> None:
    """Update `joint` for pairs of other clusters of which one is a neighbor of t. s_side, t_side: `[C]`, counts."""
    for a in range(used):
        if a in (s, t) or not t_side[a]:
            continue
        a_s, a_t = s_side[a], t_side[a]
        f_a = f_of(a_s + a_t, table) - f_of(a_s, table) - f_of(a_t, table)
        for b in range(used):
            b_s, b_t = s_side[b], t_side[b]
            if b in (s, t, a) or (b_t and b < a) or (not b_s and not b_t):
                continue
            f_b = f_of(b_s + b_t, table) - f_of(b_s, table) - f_of(b_t, table)
            old = f_of(a_s + b_s, table) + f_of(a_t + b_t, table)
            more = f_of(a_s + a_t + b_s + b_t, table) - old - f_a - f_b
            joint[a, b] += more
            joint[b, a] += more


@compiled
def _move(last: int, t: int, used: int, pairs: Any) -> None:
    """Copy row and column of slot `last` to slot t."""
    for c in range(used):
        pairs[t, c] = pairs[last, c]
    for c in range(used):
        pairs[c, t] = pairs[c, last]


@compiled
def merge(s: int, t: int, used: int, n: Any, f: Any, sums: Any, joint: Any, margins: Any, table: Any) -> None:
    """Merge cluster t into s, s < t; the cluster in the last of the `used` slots moves to slot t."""
    last = used - 1
    for side in range(2):
        _merge_side(n[side, s], n[side, t], s, t, used, joint, table)
    for side in range(2):
        for c in range(used):
            n[side, s, c] += n[side, t, c]
        for c in range(used):
            n[side, c, s] += n[side, c, t]
        sums[side, s] += sums[side, t]
        sums[side, t] = sums[side, last]
        _move(last, t, used, n[side])
        _move(last, t, used, f[side])
        for c in range(used):
            n[side, last, c] = n[side, c, last] = 0
    _move(last, t, used, joint)
    _move(last, t, used, margins)
    _f_of(s, last, n, f, table)
    _margins_of(s, last, sums, margins, table)
    _joint_of(s, last, n, f, sums, joint, table)


@compiled
def cheapest(used: int, joint: Any, margins: Any) -> tuple[int, int, float]:
    """Return the two slots whose merging loses least, and the loss; of equal pairs the last, which has rare words."""
    best, s, t = np.inf, 0, 1
    for b in range(used - 1, 0, -1):
        for a in range(b - 1, -1, -1):
            loss = margins[b, a] - joint[b, a]
            if loss < best:
                best, s, t = loss, a, b
    return s, t, best


@compiled
def merge_words(after: Any, before: Any, clusters: int, table: Any) -> tuple[Any, Any, Any]:
    """Add the words in order, each as a cluster; whenever there are more than `clusters` clusters, merge two.

    At the end, all clusters are merged, two at a time. after: starts `[W + 1]` of the words that follow each word, and
    these with counts `[E, 2]`. before: likewise the words before it. Returns the cluster of each word `[W]`, named by
    one of its words, and for every merging the two clusters, the one that keeps its name first, `[W - 1, 2]`, and the
    loss `[W - 1]`.
    """
    words = len(after[0]) - 1
    size = min(clusters, words) + 1
    n, f = np.zeros((2, size, size), dtype=np.int64), np.zeros((2, size, size))
    sums = np.zeros((2, size), dtype=np.int64)
    joint, margins = np.zeros((size, size)), np.zeros((size, size))
    joined_to, slot_of = np.arange(words), np.full(words, -1)
    name_in = np.zeros(size, dtype=np.int64)
    merges, losses = np.zeros((words - 1, 2), dtype=np.int64), np.zeros(words - 1)
    cluster_of = np.zeros(words, dtype=np.int64)
    used: Any = np.int64(0)  # numba gives a plain 0 a different type and would compile everything twice
    done = 0
    for word in range(words + 1):
        if word < words:
            slot_of[word], name_in[used] = used, word
            for side, (starts, others) in enumerate((after, before)):
                for other, count in others[starts[word] : starts[word + 1]]:
                    slot = slot_of[_name_of(other, joined_to)]
                    if slot >= 0 and (side == 0 or slot != used):
                        n[side, used, slot] += count
                        n[1 - side, slot, used] += count
            add(used, n, f, sums, joint, margins, table)
            used += 1
        else:
            for other in range(words):
                cluster_of[other] = _name_of(other, joined_to)
        while used > (clusters if word < words else 1):
            s, t, losses[done] = cheapest(used, joint, margins)
            merge(s, t, used, n, f, sums, joint, margins, table)
            merges[done, 0], merges[done, 1] = name_in[s], name_in[t]
            joined_to[name_in[t]] = name_in[s]
            used -= 1
            name_in[t] = name_in[used]
            slot_of[name_in[t]] = t
            done += 1
    return cluster_of, merges, losses
