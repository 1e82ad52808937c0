"""The search of a weight and a word penalty together, against grids and the plain search for a single number."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.evaluation.nbest import best_weight, tuned_weights
from lmtool.system.arrays import FloatArray, IntArray

Lists = tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray]


def errors_of(lists: Lists, weight: float, penalty: float) -> int:
    """Errors of the best hypotheses, the first of equal ones, by a plain loop."""
    total, log_prob, words, errors, offsets = lists
    score = total + weight * log_prob - penalty * words
    return sum(int(errors[a + int(np.argmax(score[a:b]))]) for a, b in itertools.pairwise(offsets.tolist()))


def speech(seed: int, lists: int = 40, hypotheses: int = 12) -> Lists:
    """Lists as of a recognizer: noisy scores, in which too short hypotheses are too good, and so is a flat model's."""
    rng = np.random.default_rng(seed)
    count = lists * hypotheses
    words = rng.integers(4, 12, count)
    errors = rng.poisson(2, count) + np.abs(words - np.repeat(rng.integers(6, 10, lists), hypotheses)) // 2
    log_prob = -2.5 * words - 1.2 * errors + rng.normal(0, 3, count)
    total = -11.0 * words - 4.0 * errors + rng.normal(0, 20, count)
    return total, log_prob, words, errors, np.arange(0, count + 1, hypotheses)


@pytest.mark.parametrize("seed", range(24))
def test_no_point_of_a_fine_grid_makes_fewer_errors(seed: int) -> None:
    lists = speech(seed)
    total, log_prob, words, errors, offsets = lists
    weight, penalty = tuned_weights(*lists, None, None)
    found = errors_of(lists, weight, penalty)
    assert weight >= 0
    weights, penalties = np.meshgrid(np.arange(0, 30, 0.25), np.arange(-60, 60, 0.5))
    points = np.stack([weights.ravel(), penalties.ravel()])  # [2, P]
    grid = np.zeros(points.shape[1], dtype=np.int64)
    for a, b in itertools.pairwise(offsets.tolist()):
        score = total[a:b, None] + np.stack([log_prob[a:b], -words[a:b]], axis=1) @ points
        grid += errors[a:b][score.argmax(axis=0)]
    assert found <= grid.min()


def test_a_local_optimum_of_the_search_in_turn_is_left() -> None:
    # One number after the other stays at a point from which neither alone decreases the errors.
    stuck = 0
    for seed in range(24):
        lists = speech(seed)
        total, log_prob, words, errors, offsets = lists
        weight, penalty = best_weight(total, log_prob, errors, offsets)[0], 0.0
        for _ in range(10):
            left = total + weight * log_prob
            penalty = best_weight(left, -words.astype(float), errors, offsets, least=-np.inf)[0]
            weight = best_weight(total - penalty * words, log_prob, errors, offsets)[0]
        stuck += errors_of(lists, *tuned_weights(*lists, None, None)) < errors_of(lists, weight, penalty)
    assert stuck > 4


def test_the_search_of_one_number_is_exact_in_ties_and_empty_ranges() -> None:
    """Try, for small whole numbers, a grid that holds every crossing and the middle of every range."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        offsets = np.append(0, rng.integers(1, 5, 4).cumsum())
        total, feature = (rng.integers(-3, 4, offsets[-1]).astype(float) for _ in range(2))
        errors = rng.integers(0, 4, offsets[-1])
        for least in (0.0, -1.0, -np.inf):
            weight, fewest = best_weight(total, feature, errors, offsets, least=least)
            ratios = {a / b for a in range(-6, 7) for b in range(1, 7)}
            places = sorted({r for r in ratios if r > least} | ({least} if np.isfinite(least) else set()))
            middles = [(x + y) / 2 for x, y in itertools.pairwise(places)] + [places[-1] + 1]
            middles += [places[0] - 1] if np.isinf(least) else []
            zeros = np.zeros(len(errors), dtype=int)
            of_middles = [errors_of((total, feature, zeros, errors, offsets), w, 0.0) for w in middles]
            assert fewest == min(of_middles)
            assert errors_of((total, feature, zeros, errors, offsets), weight, 0.0) == fewest


def test_the_same_lists_in_other_units_have_the_same_optimum() -> None:
    lists = speech(3)
    total, log_prob, words, errors, offsets = lists
    weight, penalty = tuned_weights(*lists, None, None)
    scaled = 1e-3 * total, 1e3 * log_prob, words, errors, offsets
    found = tuned_weights(*scaled, None, None)
    assert errors_of(scaled, *found) == errors_of(lists, weight, penalty)
    assert found == pytest.approx((1e-6 * weight, 1e-3 * penalty), rel=1e-6)


def test_lists_without_scores_and_of_one_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    offsets = np.arange(0, 41, 4)
    log_prob, errors = rng.normal(size=40), rng.integers(0, 5, 40)
    nothing: Any = np.zeros(40)
    weight, penalty = tuned_weights(nothing, log_prob, np.full(40, 6), errors, offsets, None, None)
    assert penalty == 0 and weight > 0
