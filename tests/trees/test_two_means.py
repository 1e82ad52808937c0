"""Compiled division of word vectors against the equations in plain numpy."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from lmtool.trees.builders import arranged
from lmtool.trees.clusters import ROUNDS, _halve, _next_random, clusters_tree, divide, log_odds
from tests.trees.checks import codes


def splitmix64(state: int) -> int:
    """Compute splitmix64 as Steele et al. (2014) define it, in Python's integers."""
    z = (state + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_random_numbers_are_those_of_splitmix64() -> None:
    # The first numbers of the seed 0, as its authors' program writes them.
    assert [int(_next_random(state)) for state in range(3)] == [
        0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F,
    ]  # fmt: skip
    assert all(int(_next_random(state)) == splitmix64(state) for state in range(3, 50))


def plain_log_odds(x: np.ndarray, gaussians: bool, rounds: int, seed: int) -> np.ndarray:
    """EM of two Gaussians, or 2-means, of vectors `[M, D]`."""
    m = len(x)
    one = splitmix64(seed) % m
    first, second = x[one], x[(one + 1 + splitmix64(seed + 1) % (m - 1)) % m]
    least = 1e-12 + 1e-9 * (x**2).mean()
    variance, prior, share = max(((x - x.mean(axis=0)) ** 2).mean(), least), 0.0, np.ones(m)
    for step in range(rounds):
        odds = (((x - first) ** 2).sum(axis=1) - ((x - second) ** 2).sum(axis=1)) / 2
        odds = odds / variance + prior if gaussians else odds
        before, share = share, 1 / (1 + np.exp(-odds.clip(-500))) if gaussians else (odds > 0).astype(float)
        sizes = m - share.sum(), share.sum()
        if step == rounds - 1 or (abs(share - before) <= 1e-4).all() or min(sizes) < 1e-3:
            break
        first, second = (1 - share) @ x / sizes[0], share @ x / sizes[1]
        apart = (1 - share) @ (x - first) ** 2 + share @ (x - second) ** 2
        variance, prior = max(apart.mean() / m, least), np.log(sizes[1] / sizes[0])
    return odds


NOISE = np.random.default_rng(0).normal(size=(12, 3))
CLOUDS: dict[str, np.ndarray] = {
    "noise": NOISE,
    "groups": NOISE + np.repeat([[4.0, 0, 0], [0, 0, 0]], [9, 3], axis=0),
    "far": NOISE + np.repeat([[60.0, 0, 0], [0, 0, 0]], [4, 8], axis=0),
    "points": np.repeat([[0.0, 1.0], [2.0, 1.0]], [3, 2], axis=0),
    "equal": np.ones((5, 2)),
    "line": np.array([[0.0], [1], [2]]),
    "outlier": np.array([[0.0], [1], [2], [3], [90]]),
}


@pytest.mark.parametrize("gaussians", [True, False])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_log_odds_are_those_of_the_equations(cloud: str, gaussians: bool) -> None:
    piece = np.array([1, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15])[: len(CLOUDS[cloud])]
    vectors = np.full((16, CLOUDS[cloud].shape[1]), 1e6, dtype=np.float32)  # of words that are not in the piece
    vectors[piece] = CLOUDS[cloud]
    squares, odds = (vectors.astype(np.float64) ** 2).sum(axis=1), np.empty(len(piece))
    for rounds, seed in itertools.product((1, 2, 3, 40), range(4)):
        log_odds(vectors, squares, piece, gaussians, rounds, seed, odds)
        wanted = plain_log_odds(vectors[piece].astype(np.float64), gaussians, rounds, seed)
        np.testing.assert_allclose(odds, wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("odds", "first", "second"), [([3, -1, 0, 2], [11, 12], [13, 10]), ([0.5, 3, -9, 1, 2], [12, 10, 13], [14, 11])]
)
def test_halves_in_the_order_of_odds(odds: list[float], first: list[int], second: list[int]) -> None:
    halves, sizes = np.full((2, 9), -1), np.full(2, 7)
    _halve(np.arange(10, 10 + len(odds)), np.array(odds, dtype=np.float64), halves, sizes)
    assert sizes.tolist() == [len(first), len(second)]
    assert halves[0, : sizes[0]].tolist() == first and halves[1, : sizes[1]].tolist() == second


def plain_division(
    vectors: np.ndarray,
    counts: np.ndarray,
    gaussians: bool,
    adaptive: bool,
    margin: float,
    most: int,
    deep: int,
    seed: int,
) -> list[tuple[int, str]]:
    """Return words and codes like `divide` with ROUNDS, with at most `most` codes per word and depth `deep`."""
    found: list[tuple[int, str]] = []
    number = np.ones(len(vectors), dtype=int)
    nodes = itertools.count()

    def branch(piece: np.ndarray, code: str) -> None:
        if len(piece) == 1:
            found.append((int(piece[0]), code))
            return
        state = (splitmix64(seed) >> 2) + 2 * next(nodes)
        odds = np.array([-1, 1]) if len(piece) == 2 else plain_log_odds(vectors[piece], gaussians, ROUNDS, state)
        second = odds > 0
        halves = [piece[:0], piece]
        if adaptive and len(code) < deep:
            both = (abs(odds) < margin) & (number[piece] < most)
            if len(piece) < 4 or len({*second[~both]}) < 2:
                both[:] = False
            halves = [piece[~second | both], piece[second | both]]
            number[piece[both]] += 1
        if not all(map(len, halves)):
            halves = np.split(piece[np.argsort(odds)], [(len(piece) + 1) // 2])
        lighter = int(counts[halves[0]].sum() >= counts[halves[1]].sum())
        branch(halves[1 - lighter], code + "0")
        branch(halves[lighter], code + "1")

    branch(np.arange(len(vectors)), "")
    return sorted(found, key=lambda leaf: leaf[0])


@pytest.mark.parametrize(
    ("gaussians", "adaptive", "margin", "most", "deep"),
    [
        (False, False, 0.0, 8, 9),
        (True, False, 0.0, 8, 9),
        (False, True, 0.0, 8, 9),
        (True, True, 0.0, 8, 2),
        (True, True, 0.8, 8, 9),
        (True, True, 2.0, 2, 9),
        (True, True, 4.0, 3, 3),
    ],
)
def test_words_are_divided_as_a_plain_program_does(
    gaussians: bool, adaptive: bool, margin: float, most: int, deep: int
) -> None:
    for seed, words in itertools.product(range(4), (1, 2, 3, 12)):
        rng = np.random.default_rng(seed)
        vectors, counts = rng.normal(size=(words, 2)).astype(np.float32), rng.integers(0, 3, words)
        children, leaf_words = divide(vectors, counts, gaussians, adaptive, margin, most, deep, seed)
        tree = arranged(children, 0, leaf_words)
        wanted = plain_division(vectors.astype(np.float64), counts, gaussians, adaptive, margin, most, deep, seed)
        assert list(zip(tree.leaf_words.tolist(), codes(tree), strict=True)) == wanted


def halved_from(depth: int, leaves: list[str]) -> bool:
    """Return whether the words left at a depth are halved, so that their codes are as short as possible."""
    pieces = defaultdict(list)
    for code in leaves:
        pieces[code[:depth]].append(len(code[depth:]))
    return all(max(lengths) == math.ceil(math.log2(len(lengths))) for lengths in pieces.values())


def test_from_three_times_the_logarithm_on_words_are_halved() -> None:
    # Of 38 words from depth 18 on, log2 39 being rounded up to 6. Powers of 3 are split off one after the other; the
    # last word makes their mean 0, so that none is lost beside it.
    vectors = np.append(3.0 ** np.arange(-18, 19), -(3.0 ** np.arange(-18, 19)).sum())[:, None]
    leaves = codes(clusters_tree(vectors, np.arange(38), "adaptive", "kmeans", 0.0, 0))
    assert halved_from(18, leaves) and not halved_from(17, leaves)


def test_the_tree_of_clusters_has_the_margin_of_epsilon() -> None:
    # Responsibilities of 1/4 and 3/4 are odds of 1/3 and 3.
    for seed in range(4):
        rng = np.random.default_rng(seed)
        vectors, counts = rng.normal(size=(12, 2)).astype(np.float32), rng.integers(0, 3, 12)
        tree = clusters_tree(vectors, counts, "adaptive", "gaussians", 0.25, seed)
        centered = (vectors - vectors.mean(axis=0, dtype=np.float64)).astype(np.float32).astype(np.float64)
        wanted = plain_division(centered, counts, True, True, math.log(3), 8, 12, seed)
        assert list(zip(tree.leaf_words.tolist(), codes(tree), strict=True)) == wanted
