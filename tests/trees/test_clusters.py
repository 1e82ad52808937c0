"""Trees over word vectors: where groups are plain to see, several codes, and what has no sense."""

from __future__ import annotations

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.trees.clusters import MAX_CODES, _separate, clusters_tree, log_odds
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
        ({"epsilon": 0.5}, r"tree\.epsilon=0\.5: must be from 0 to below 0\.5"),
        ({"epsilon": -0.1}, r"tree\.epsilon=-0\.1: must be"),
        ({"epsilon": 0.1, "method": "kmeans"}, r"several codes .* need tree\.split=adaptive and"),
        ({"epsilon": 0.1, "split": "balanced"}, r"several codes .* need tree\.split=adaptive and"),
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
