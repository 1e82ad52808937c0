"""Paired tests against what can be counted out by hand."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmtool.evaluation.significance import blocks, compare, draw, exchanged, perplexity_interval

# Three sentences of 1, 2 and 1 tokens under two models.
LOG_PROB = np.array([[-1.0, -2.0, -1.0, -3.0], [-2.0, -2.5, -1.0, -2.0]])
OFFSETS = np.array([0, 1, 3, 4])


def test_the_bootstrap_on_a_text_whose_resamples_can_be_counted_out() -> None:
    sums, lengths = np.array([[-1.0, -3.0, -3.0], [-2.0, -3.5, -2.0]]), np.array([1, 2, 1])
    observed = (-7.5 + 7.0) / 4
    differences, perplexities = [], []
    for picks in itertools.product(range(3), repeat=3):  # all 27, equally likely
        means = sums[:, picks].sum(axis=1) / lengths[list(picks)].sum()
        differences.append(means[1] - means[0])
        perplexities.append(np.exp(-means[1]) - np.exp(-means[0]))
    want = np.mean(np.abs(np.array(differences) - observed) >= abs(observed) - 1e-12)
    (found,) = compare(LOG_PROB, OFFSETS, resamples=4_000, seed=1)
    assert found is not None
    assert found.perplexity == pytest.approx(np.exp(7.5 / 4) - np.exp(7 / 4))
    assert 0.3 < want < 0.95 and found.p_bootstrap == pytest.approx(want, abs=0.03)
    # The ends of the interval are among the 27 values, where their shares pass 2.5 and 97.5 %.
    ranked = np.sort(perplexities)
    assert found.interval == pytest.approx((ranked[0], ranked[-1]))  # each end has a share of 1/27 or more


def test_randomisation_on_a_text_whose_exchanges_can_be_counted_out() -> None:
    # Sums differ by -1, -.5 and 1: of the 8 choices of signs |sum| >= .5 in all.
    (found,) = compare(LOG_PROB, OFFSETS, resamples=2_000, seed=1)
    assert found is not None and found.p_randomisation == 1
    # By 1, 2, 4: |sum| is 7 twice, 5 twice, 3 twice and 1 twice; as large as 7: 2 of 8.
    one_sided = np.array([[-1.0, -2.0, -4.0], [-2.0, -4.0, -8.0]])
    (found,) = compare(one_sided, np.arange(4), resamples=4_000, seed=1)
    assert found is not None and found.p_randomisation == pytest.approx(0.25, abs=0.03)
    # The smallest p there can be is that of the text itself.
    clear = np.stack([np.zeros(60), np.full(60, -1.0)]) - 1
    (found,) = compare(clear, np.arange(61), resamples=999, seed=1)
    assert found is not None and found.p_randomisation == found.p_bootstrap == 1 / 1000


def test_draws_are_even_and_paired() -> None:
    values = np.column_stack([np.eye(5), np.arange(5)])
    found = draw(values, 4_000, np.random.default_rng(3))
    counts = found[:, :5]
    np.testing.assert_array_equal(counts.sum(axis=1), 5)
    np.testing.assert_allclose(found[:, 5], counts @ np.arange(5))  # the same rows for every column
    np.testing.assert_allclose(counts.mean(axis=0), 1, atol=0.06)  # 4 standard errors
    np.testing.assert_allclose(counts.var(axis=0), 0.8, rtol=0.1)  # binomial: 5 * 1/5 * 4/5
    signs = exchanged(np.eye(3), 1_001, np.random.default_rng(3))
    assert signs.shape == (1_001, 3) and set(np.unique(signs)) == {-1, 1}
    np.testing.assert_allclose(signs.mean(axis=0), 0, atol=0.13)


def test_draws_follow_splitmix64() -> None:
    # The first numbers of Vigna's splitmix64.c for two seeds, as fractions of 2^64: .350, .174, .532, .249, .890 for
    # 1234567, and .883, .432, .026, .971, .106 for 0; times five they are the rows 1 0 2 1 4 and 4 2 0 4 0.
    seeds: Any = SimpleNamespace(integers=lambda *_, **__: np.array([1234567, 0], dtype=np.uint64))
    assert draw(np.eye(5), 2, seeds).tolist() == [[1, 2, 1, 0, 1], [2, 0, 1, 0, 2]]


def test_the_sign_of_every_row_is_drawn() -> None:
    for rows in (8, 9, 17):  # a byte has eight signs
        signs = exchanged(np.eye(rows), 1_001, np.random.default_rng(3))
        np.testing.assert_allclose(signs.mean(axis=0), 0, atol=0.16)  # 5 standard errors
        assert (signs[:, 0] != signs[:, -1]).any()


def test_the_interval_of_a_perplexity_by_hand() -> None:
    # Sentences of 1 and 3 tokens and sums of -1 and -9: of two draws, a quarter of all are the first sentence twice, of
    # mean -1, a quarter the second, of mean -3.
    log_prob = np.array([-1.0, -3.0, -3.0, -3.0])
    found = perplexity_interval(log_prob, np.array([0, 1, 4]), resamples=400, seed=1)
    assert found == pytest.approx((math.e, math.e**3))
    # Of a hundred sentences of one token, half of them of -1 and half of -3, the mean is -2 with a deviation of .1.
    log_prob = np.tile([-1.0, -3.0], 50)
    found = perplexity_interval(log_prob, np.arange(101), resamples=400, seed=1)
    assert found is not None
    np.testing.assert_allclose(np.log(found), [2 - 1.96 * 0.1, 2 + 1.96 * 0.1], atol=0.04)
    assert found == perplexity_interval(log_prob, np.arange(101), resamples=400, seed=1)
    log_prob[7] = -np.inf
    assert perplexity_interval(log_prob, np.arange(101), resamples=10, seed=1) is None


def test_the_same_seed_gives_the_same_and_equal_models_do_not_differ() -> None:
    log_prob = np.random.default_rng(0).normal(-3, 1, (2, 400))
    offsets = np.arange(0, 401, 8)
    assert compare(log_prob, offsets, resamples=500, seed=7) == compare(log_prob, offsets, resamples=500, seed=7)
    assert compare(log_prob, offsets, resamples=500, seed=7) != compare(log_prob, offsets, resamples=500, seed=8)
    (found,) = compare(log_prob[[0, 0]], offsets, resamples=500, seed=7)
    assert found is not None
    assert (found.perplexity, found.interval, found.p_bootstrap, found.p_randomisation) == (0, (0, 0), 1, 1)


def test_p_is_uniform_where_there_is_no_difference() -> None:
    rng = np.random.default_rng(5)
    below = [
        [found.p_bootstrap < 0.1, found.p_randomisation < 0.1]
        for _ in range(300)
        if (found := compare(rng.normal(-3, 1, (2, 200)), np.arange(0, 201, 4), resamples=200, seed=1)[0])
    ]
    assert len(below) == 300
    np.testing.assert_allclose(np.mean(below, axis=0), 0.1, atol=0.06)


def test_a_model_that_allows_not_every_token_has_no_difference() -> None:
    log_prob = np.array([[-1.0, -2.0], [-1.0, -np.inf], [-2.0, -1.5]])
    first, second = compare(log_prob, np.array([0, 1, 2]), resamples=100, seed=1)
    assert first is None and second is not None and np.isfinite(second.perplexity)


def test_blocks() -> None:
    np.testing.assert_array_equal(blocks(45, 20), [0, 20, 40, 45])
    np.testing.assert_array_equal(blocks(40, 20), [0, 20, 40])
