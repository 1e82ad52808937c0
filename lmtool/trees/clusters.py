"""Trees that keep words with similar vectors together: a set of words is repeatedly divided in two by their vectors.

The halves are a mixture of two Gaussians or the clusters of 2-means. A tree has W - 1 mostly small mixtures: in numpy,
the overhead of calls would dominate, so the division is compiled. Of a piece, only the word ids are copied.
tests/trees/test_clusters.py compares a division with EM in numpy. Legend: W words, D dimensions, M words of the piece
that is divided.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.config.rules import require_whole
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray, as_array, describe, word_counts
from lmtool.trees.builders import arrange_tree
from lmtool.trees.division import require_division
from lmtool.trees.tree import Tree

compiled = numba.njit(cache=True, nogil=True)

MAX_CODES = 8  # maximum number of codes per word
ROUNDS = 10  # maximum rounds of EM or 2-means
MIN_OVERLAPPING = 4  # minimum words of a piece whose halves may overlap


def clusters_tree(
    vectors: npt.NDArray[np.floating], counts: IntArray, split: str, method: str, epsilon: float, seed: int
) -> Tree:
    """Build the tree over words `[W]` by their vectors, float `[W, D]` (Mnih & Hinton 2009).

    counts: int64 `[W]`; the half with the larger sum of counts is child 0.
    method: "kmeans", 2-means, or "gaussians", a mixture of two Gaussians (one variance for both and all dimensions)
    fitted by EM.
    split: "balanced" sorts the words by their log odds and cuts in the middle; "adaptive" puts each word into the
    likelier component.
    epsilon: with adaptive Gaussians, a word whose responsibilities are within epsilon of 0.5 goes to both halves and
    gets several codes; 0 for one code per word.
    seed: chooses the words at which the two means start.

    With the paper's rule, sets could grow forever. Therefore no word gets more than 8 codes, and the halves do not
    overlap in sets of 3 words or fewer or if one half would be as large as the whole set. From depth 3 log2 W on all
    cuts are balanced, which bounds the codes of outliers that are split off one at a time. Equal vectors are halved.

    Raises UserError for an unknown split or method, an epsilon below 0, of 0.5 or more, or without adaptive Gaussians,
    a seed below 0, and vectors that are not finite; ValueError if `counts` are not counts, or vectors have another type
    or a shape that does not fit.

    >>> import numpy as np
    >>> from lmtool.trees import clusters_tree, code_strings
    >>> vectors = np.array([[1, 0], [-1, 0], [1, 0.1], [-1, 0.1]])
    >>> tree = clusters_tree(vectors, [4, 3, 2, 1], "adaptive", "kmeans", epsilon=0, seed=1)
    >>> [code[0] for code in code_strings(tree)]  # words 0 and 2 in one half
    ['0', '1', '0', '1']
    """
    require_division(split, method, epsilon)
    require_whole("tree.seed", seed, 0)
    counts = word_counts("clusters_tree: counts", counts)
    vectors = as_array("clusters_tree: vectors", vectors)
    if vectors.ndim != 2 or len(vectors) != len(counts) or not vectors.shape[1] or vectors.dtype.kind not in "iuf":
        wanted = f"numbers [{len(counts)}, D], D 1 or more"
        raise ValueError(f"clusters_tree: vectors must be {wanted}, as there are counts; got {describe(vectors)}")
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0, dtype=np.float64)
        centered = np.ascontiguousarray(vectors - mean, dtype=np.float32)
    if not np.isfinite(centered).all():
        raise UserError("the word vectors are not finite: their model diverged; train it with a lower optim.lr")
    margin = math.log((0.5 + epsilon) / (0.5 - epsilon))  # as log odds
    max_depth = 3 * math.ceil(math.log2(len(vectors) + 1))
    adaptive, gaussians = split == "adaptive", method == "gaussians"
    children, leaf_words = divide(centered, counts, gaussians, adaptive, margin, MAX_CODES, max_depth, seed)
    return arrange_tree(children, 0, leaf_words)


@numba.njit(cache=True, nogil=True, fastmath=True)  # sums in any order, so that the loop is vectorized
def _project(vectors: Any, piece: Any, direction: Any, projections: Any) -> None:
    """Write the dot products of the piece's vectors with `direction` `[D]` to `projections` `[M]`."""
    for i in range(len(piece)):
        vector = vectors[piece[i]]
        total = np.float32(0)
        for d in range(len(direction)):
            total += vector[d] * direction[d]
        projections[i] = total


@numba.njit(cache=True, nogil=True, fastmath=True)
def _square(vector: Any) -> Any:
    """Return the squared length of a vector."""
    total = 0.0
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    return total


@numba.njit(cache=True, nogil=True, fastmath=True)
def _weighted_sum(vectors: Any, piece: Any, share: Any, total: Any) -> None:
    """Write the sum of the piece's vectors, weighted by `share` `[M]`, to `total` `[D]`."""
    total[:] = 0
    for i in range(len(piece)):
        if share[i] != 0:
            vector = vectors[piece[i]]
            for d in range(len(total)):
                total[d] += share[i] * vector[d]


@compiled
def _next_random(state: int) -> Any:
    """Return the random number of a state, uint64: splitmix64 (Steele et al. 2014), which keeps no state per piece."""
    z = np.uint64(state) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def log_odds(vectors: Any, squares: Any, piece: Any, gaussians: bool, rounds: int, seed: int, odds: Any) -> None:
    """Write the log odds of the second of two components against the first, for each word, to `odds` `[M]`.

    vectors: `[W, D]`. squares: `[W]`, their squared lengths. piece: `[M]`, word ids. The components are Gaussians with
    one variance for both and for all dimensions, fitted by EM; without `gaussians`, 2-means, and odds are half the
    difference of squared distances. The means start at two random words.
    """
    m, dimensions = len(piece), vectors.shape[1]
    one = np.int64(_next_random(seed) % np.uint64(m))
    other = (one + 1 + np.int64(_next_random(seed + 1) % np.uint64(m - 1))) % m
    share = np.ones(m)
    whole, second, first = np.empty(dimensions), np.empty(dimensions), np.empty(dimensions)
    direction = np.empty(dimensions, dtype=np.float32)
    _weighted_sum(vectors, piece, share, whole)
    square = 0.0
    for i in range(m):
        square += squares[piece[i]]
    for d in range(dimensions):
        first[d], second[d] = vectors[piece[one], d], vectors[piece[other], d]
    least = 1e-12 + 1e-9 * square / (m * dimensions)
    variance = max((square - _square(whole) / m) / (m * dimensions), least)
    prior = 0.0
    for step in range(rounds):
        for d in range(dimensions):
            direction[d] = second[d] - first[d]
        _project(vectors, piece, direction, odds)
        middle = (_square(second) - _square(first)) / 2
        in_second = 0.0
        changed = False
        for i in range(m):
            odds[i] -= middle
            if gaussians:
                odds[i] = odds[i] / variance + prior
                share_now = 1 / (1 + math.exp(-odds[i])) if odds[i] > -500 else 0.0
            else:
                share_now = 1.0 if odds[i] > 0 else 0.0
            changed |= abs(share_now - share[i]) > 1e-4
            share[i] = share_now
            in_second += share_now
        in_first = m - in_second
        if step == rounds - 1 or not changed or min(in_first, in_second) < 1e-3:
            break
        _weighted_sum(vectors, piece, share, second)
        for d in range(dimensions):
            first[d] = (whole[d] - second[d]) / in_first
            second[d] /= in_second
        spread = square - in_first * _square(first) - in_second * _square(second)
        variance = max(spread / (m * dimensions), least)
        prior = math.log(in_second / in_first)


@compiled
def _halve(piece: Any, odds: Any, halves: Any, sizes: Any) -> None:
    """Sort the words by their odds and cut in the middle, into `halves` `[2, W]` with `sizes` `[2]`."""
    order = np.argsort(odds)
    sizes[0] = (len(piece) + 1) // 2
    sizes[1] = len(piece) - sizes[0]
    for i in range(len(piece)):
        half = int(i >= sizes[0])
        halves[half, i - half * sizes[0]] = piece[order[i]]


@compiled
def _separate(piece: Any, odds: Any, margin: float, codes: Any, max_codes: int, halves: Any, sizes: Any) -> None:
    """Put each word into the likelier component, or into both if its odds are nearer to 0 than `margin` and it may."""
    m = len(piece)
    only = np.zeros(2, dtype=np.int64)
    for i in range(m):
        if abs(odds[i]) >= margin or codes[piece[i]] >= max_codes:
            only[int(odds[i] > 0)] += 1
    both_allowed = m >= MIN_OVERLAPPING and min(only[0], only[1]) > 0  # else a half could be as large as the whole
    sizes[:] = 0
    for i in range(m):
        word = piece[i]
        likelier = int(odds[i] > 0)
        halves[likelier, sizes[likelier]] = word
        sizes[likelier] += 1
        if both_allowed and abs(odds[i]) < margin and codes[word] < max_codes:
            halves[1 - likelier, sizes[1 - likelier]] = word
            sizes[1 - likelier] += 1
            codes[word] += 1


@compiled
def divide(
    vectors: Any, counts: Any, gaussians: bool, adaptive: bool, margin: float, max_codes: int, max_depth: int, seed: int
) -> tuple[Any, Any]:
    """Divide until single words are left; return children `[N, 2]`, leaves numbered as they arise, and words `[L]`.

    vectors: `[W, D]` float32. counts: `[W]`; the half with more of them is child 0. adaptive: each word goes to the
    likelier component, or, with log odds nearer to 0 than `margin`, to both while it has fewer than `max_codes` codes;
    otherwise, if that leaves one half empty, and from depth `max_depth` on, words are sorted by their odds and cut in
    the middle.
    """
    words = len(vectors)
    capacity = words * max_codes if margin > 0 else words
    children, leaf_words = np.empty((capacity, 2), dtype=np.int32), np.empty(capacity, dtype=np.int64)
    pieces = np.empty(capacity, dtype=np.int64)  # pieces still to divide, concatenated; the last is next
    pieces[:words] = np.arange(words)
    # Start, end, parent, side and depth of each of these pieces: one per level, and balanced cuts add at most 64.
    waiting = np.zeros((max_depth + 66, 5), dtype=np.int64)
    waiting[0, 1], waiting[0, 2] = words, -1
    left = 1
    squares = np.empty(words)
    for word in range(words):
        squares[word] = _square(vectors[word])
    codes = np.ones(words, dtype=np.int64)
    odds = np.empty(words)
    halves, sizes = np.empty((2, words), dtype=np.int64), np.empty(2, dtype=np.int64)
    nodes: Any = np.int64(0)  # numba gives a plain 0 a different type and would compile log_odds twice
    leaves = 0
    first_state = int(_next_random(seed) >> np.uint64(2))  # far apart even for consecutive seeds
    while left:
        left -= 1
        start, end, parent, side, depth = waiting[left]
        m = end - start
        if m == 1:
            if parent >= 0:
                children[parent, side] = -1 - leaves
            leaf_words[leaves] = pieces[start]
            leaves += 1
            continue
        if parent >= 0:
            children[parent, side] = nodes
        piece = pieces[start:end].copy()
        if m == 2:
            odds[0], odds[1] = -1, 1
        else:
            log_odds(vectors, squares, piece, gaussians, ROUNDS, first_state + 2 * nodes, odds[:m])
        sizes[:] = 0
        if adaptive and depth < max_depth:
            _separate(piece, odds[:m], margin, codes, max_codes, halves, sizes)
        if min(sizes[0], sizes[1]) == 0:
            _halve(piece, odds[:m], halves, sizes)
        more = 0
        for half in range(2):
            for i in range(sizes[half]):
                more += counts[halves[half, i]] * (2 * half - 1)
        more_frequent = int(more > 0)
        begin = start
        for bit in (1, 0):
            half = more_frequent if bit == 0 else 1 - more_frequent
            for i in range(sizes[half]):
                pieces[begin + i] = halves[half, i]
            stop = begin + sizes[half]
            waiting[left, 0], waiting[left, 1], waiting[left, 2] = begin, stop, nodes
            waiting[left, 3], waiting[left, 4] = bit, depth + 1
            left += 1
            begin = stop
        nodes += 1
    return children[:nodes], leaf_words[:leaves]
