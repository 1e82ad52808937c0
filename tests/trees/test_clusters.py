"""Trees over word vectors: by hand, where groups are plain to see, and against the equations in plain numpy."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.trees.builders import arrange_tree
from lmtool.trees.clusters import MAX_CODES, ROUNDS, _halve, _next_random, _separate, clusters_tree, divide, log_odds
from tests.trees.checks import check, codes, same, zipf

DIVISIONS = [
    ("balanced", "kmeans", 0.0),
    ("balanced", "gaussians", 0.0),
    ("adaptive", "kmeans", 0.0),
    ("adaptive", "gaussians", 0.0),
    ("adaptive", "gaussians", 0.25),
    ("adaptive", "gaussians", 0.49),
]


def grouped(words: int, groups: int, dimensions: int, apart: float) -> np.ndarray:
    """Vectors around the centers of groups: word w is of group w mod groups."""
    rng = np.random.default_rng(1)
    centers = apart * rng.normal(size=(groups, dimensions))
    return (centers[np.arange(words) % groups] + rng.normal(size=(words, dimensions))).astype(np.float32)


@pytest.mark.parametrize("words", [1, 2, 3, 4, 33, 1000])
@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_whole_trees_twice(division: tuple, words: int) -> None:
    vectors = grouped(words, 10, 7, 1.0)
    tree = clusters_tree(vectors, zipf(words), *division, 5)
    check(tree, words, one_code=not division[2])
    assert same(tree, clusters_tree(vectors, zipf(words), *division, 5))
    if words >= 33 and division[2] == 0.49:
        assert np.diff(tree.word_leaves).max() == 8
    if words == 1000:
        assert not same(tree, clusters_tree(vectors, zipf(words), *division, 6))
        per_word = np.diff(tree.word_leaves)
        assert per_word.max() <= MAX_CODES and (per_word.max() > 1) == bool(division[2])
        if division[0] == "balanced":
            assert set(tree.depths.tolist()) == {9, 10}
        assert tree.depths.max() <= 3 * 10 + 10


@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_equal_vectors_and_outliers(division: tuple) -> None:
    tree = clusters_tree(np.zeros((100, 5), dtype=np.float32), zipf(100), *division, 0)
    check(tree, 100)
    assert set(tree.depths.tolist()) == {6, 7}
    doubling = (2.0 ** np.arange(100)).astype(np.float32)[:, None]  # one outlier after the other
    tree = clusters_tree(doubling, zipf(100), *division, 0)
    check(tree, 100, one_code=not division[2])
    assert tree.depths.max() <= 3 * 7 + 7


@pytest.mark.parametrize("division", DIVISIONS[:4], ids=str)
def test_groups_far_apart_are_divided_first(division: tuple) -> None:
    vectors = grouped(64, 2, 6, 20.0)
    found = codes(clusters_tree(vectors, zipf(64), *division, 0))
    assert {code[0] for code in found[0::2]} == {"0"}  # the commonest word is 0
    assert {code[0] for code in found[1::2]} == {"1"}


def test_the_line_by_hand() -> None:
    # 0 1 | 10 11 12: adaptive finds the gap, balanced gives the first half one word more.
    line = np.array([[0], [1], [10], [11], [12]], dtype=np.float32)
    counts = np.array([9, 8, 1, 1, 1])
    for method in ("kmeans", "gaussians"):
        found = codes(clusters_tree(line, counts, "adaptive", method, 0.0, 0))
        assert found[:2] == ["00", "01"] and {code[0] for code in found[2:]} == {"1"}
        found = codes(clusters_tree(line, counts, "balanced", method, 0.0, 0))
        assert {code[0] for code in found[:2]} == {"0"} and {code[0] for code in found[3:]} == {"1"}


def test_vectors_far_from_0() -> None:
    # Beside 1e7 float32 does not tell them apart.
    line, counts = np.array([[0.0], [0.01], [0.1], [0.11], [0.12]]), np.array([9, 8, 1, 1, 1])
    for method in ("kmeans", "gaussians"):
        near, far = (clusters_tree(line + place, counts, "adaptive", method, 0.0, 0) for place in (0, 1e7))
        assert same(near, far) and near.depths.tolist()[:2] == [2, 2]


@pytest.mark.parametrize(
    "vectors", [np.zeros(3), np.zeros((3, 0)), np.zeros((2, 2)), np.zeros((3, 2, 1)), np.array([["1"]] * 3)]
)
def test_arrays_that_are_no_vectors(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^clusters_tree: vectors must be numbers \[3, D\], D 1 or more"):
        clusters_tree(vectors, np.ones(3, dtype=np.int64), "adaptive", "gaussians", 0.0, 0)


def test_log_odds_of_two_words_by_hand() -> None:
    # At 0 and 2, which are the first means. The variance of both together is 1, so that the odds of the second against
    # the first are (x - 1) (2 - 0) / 1, or the other way round; half the difference of squared distances is the same.
    vectors, odds = np.array([[0], [2]], dtype=np.float32), np.empty(2, dtype=np.float32)
    for gaussians in (True, False):
        for seed in range(4):
            log_odds(vectors, np.array([0.0, 4.0]), np.arange(2), gaussians, 1, seed, odds)
            assert sorted(odds.tolist()) == pytest.approx([-2, 2], rel=1e-6)
    # Three words at 0 and one at 8: a mean of 2 and a variance of 12. Where the means are 0 and 8, the odds are
    # (x - 4) 8 / 12; they say nothing where both are 0.
    vectors, odds, found = np.array([[0], [0], [0], [8]], dtype=np.float32), np.empty(4, dtype=np.float32), set()
    for seed in range(20):
        log_odds(vectors, np.array([0.0, 0.0, 0.0, 64.0]), np.arange(4), True, 1, seed, odds)
        found.add(tuple(round(abs(number), 4) for number in odds.tolist()))
    assert found == {(0, 0, 0, 0), (2.6667, 2.6667, 2.6667, 2.6667)}


@pytest.mark.parametrize(
    ("odds", "codes_before", "first", "second", "added"),
    [
        ([-3, -2, 0.1, 2], [0, 0, 0, 0], [0, 1, 2], [2, 3], [0, 0, 1, 0]),  # word 2 is nearer to 0 than 0.5
        ([-3, -2, 0.1, 2], [0, 0, 8, 0], [0, 1], [2, 3], [0, 0, 0, 0]),  # which has as many codes as there may be
        ([-3, -2, -0.1, 0.1], [0, 0, 0, 0], [0, 1, 2], [3], [0, 0, 0, 0]),  # the first half would be the whole
        ([3, 2, 0.1, -0.1], [0, 0, 0, 0], [3], [0, 1, 2], [0, 0, 0, 0]),  # the second
        ([-3, 0.1, 2], [0, 0, 0], [0], [1, 2], [0, 0, 0]),  # too few words to have any in both
        ([-3, -2, 0.1, 0.2], [0, 0, 8, 0], [0, 1, 3], [2, 3], [0, 0, 0, 1]),  # nor is the second: word 2 stays there
        ([-3, 0, 2, 1], [0, 8, 0, 0], [0, 1], [2, 3], [0, 0, 0, 0]),  # 0 is not above 0
        ([-0.5, -3, 0.5, 0.49], [0, 0, 0, 0], [0, 1, 3], [2, 3], [0, 0, 0, 1]),  # 0.5 is not below 0.5
    ],
)
def test_halves_of_a_piece_by_hand(
    odds: list[float], codes_before: list[int], first: list[int], second: list[int], added: list[int]
) -> None:
    size = len(odds)
    halves, sizes, number = np.full((2, size), -1), np.full(2, 9), np.array(codes_before)
    _separate(np.arange(size), np.array(odds, dtype=np.float32), 0.5, number, 8, halves, sizes)
    assert halves[0, : sizes[0]].tolist() == first and halves[1, : sizes[1]].tolist() == second
    assert (number - codes_before).tolist() == added


def test_a_word_between_two_groups_gets_two_codes() -> None:
    rng = np.random.default_rng(0)
    line = np.concatenate([rng.normal(-4, 1, 30), rng.normal(4, 1, 30), [0.0]]).astype(np.float32)[:, None]
    tree = clusters_tree(line, np.ones(61, dtype=np.int64), "adaptive", "gaussians", 0.4, 0)
    first = [code[0] for code, word in zip(codes(tree), tree.leaf_words, strict=True) if word == 60]
    assert set(first) == {"0", "1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "both"}, r"tree\.split=both: must be one of balanced, adaptive"),
        ({"method": "em"}, r"tree\.method=em: must be one of kmeans, gaussians"),
        ({"epsilon": -0.1}, r"tree\.epsilon=-0\.1: must be"),
        ({"seed": -1}, r"tree\.seed=-1: must be"),
        ({"vectors": np.array([[np.nan, 0], [1, 0], [0, 1]])}, "not finite: their model diverged"),
        ({"vectors": np.full((3, 2), np.nan, dtype=np.float32)}, "not finite: their model diverged"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_wrong(change: dict, message: str) -> None:
    right = {
        "vectors": np.eye(3, 2, dtype=np.float32),
        "counts": np.ones(3, dtype=np.int64),
        "split": "adaptive",
        "method": "gaussians",
        "epsilon": 0.0,
        "seed": 0,
    }
    check(clusters_tree(**right), 3)
    with pytest.raises(UserError, match=message):
        clusters_tree(**{**right, **change})


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
        tree = arrange_tree(children, 0, leaf_words)
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
