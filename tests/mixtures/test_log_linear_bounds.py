"""Log-linear weights where the best ones lie on their bounds, at 0."""

from __future__ import annotations

import math
from itertools import chain, combinations

import numpy as np
import pytest

from lmtool.mixtures.log_linear import (
    Chunks,
    LogLinear,
    bounded_optimum,
    combined,
    fit_log_linear,
    likelihood,
    without_lone_reserves,
)
from tests.commands.test_ensemble import Fixed


def one_chunk(log_dist: np.ndarray, targets: np.ndarray) -> Chunks:
    return lambda: iter([(log_dist, targets)])


def members_of_no_use(words: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Four members `[4, 200, V]` and targets `[200]` drawn from the first. The second and the fourth are noise, but low
    at the targets; the last word, never a target, has probability 0 under the fourth alone.
    """
    rng = np.random.default_rng(5)
    first, second, third, fourth = rng.dirichlet(np.ones(words), (4, 200))
    targets = np.array([rng.choice(words - 1, p=row[:-1] / row[:-1].sum()) for row in first])
    for noise in (second, fourth):
        noise[np.arange(200), targets] /= 3
    fourth[:, -1] = 0
    with np.errstate(divide="ignore"):
        return np.log([p / p.sum(axis=1, keepdims=True) for p in (first, second, third, fourth)]), targets


def test_conditions_of_the_optimum_hold() -> None:
    log_dist, targets = members_of_no_use()
    chunks = one_chunk(log_dist[:3], targets)
    fit = fit_log_linear(chunks, 3)
    assert fit.gap <= 1e-9 and fit.iterations < 12
    assert fit.weights[0] > 0.5 and fit.weights[1] == 0
    gradient = likelihood(fit.weights, chunks).gradient
    assert gradient[1] < 0  # a weight above 0 would cost likelihood
    positive = fit.weights > 0
    np.testing.assert_allclose(gradient[positive], 0, atol=1e-5)


def test_a_member_that_goes_takes_its_zeros_with_it() -> None:
    # However small its weight, the fourth member moves the probability of the last word to the others, so no minimum
    # weight is optimal. It is left out, the first has the weight that it has alone, and the gain that the zeros would
    # have given is reported.
    log_dist, targets = members_of_no_use()
    both, first = one_chunk(log_dist[[0, 3]], targets), one_chunk(log_dist[:1], targets)
    fit, alone = fit_log_linear(both, 2), fit_log_linear(first, 1)
    assert fit.weights.tolist() == [pytest.approx(alone.weights[0], abs=1e-3), 0]
    assert fit.value == combined(log_dist[[0, 3]], fit.weights)[np.arange(200), targets].mean()
    least = likelihood(np.array([0.9, 1e-12]), both).value
    assert alone.gap <= 1e-9 < least - fit.value <= fit.gap
    assert fit_log_linear(both, 2, iterations=6).iterations == 6 < fit.iterations  # of both searches


def test_nothing_kept_for_other_types_is_no_gain() -> None:
    # Were the last word <s>, the fourth member would only keep nothing for types outside the vocabulary.
    log_dist, targets = members_of_no_use()
    equal = without_lone_reserves(log_dist[[0, 3]])
    assert np.isneginf(equal[:, :, -1]).all() and (equal[:, :, :-1] == log_dist[[0, 3], :, :-1]).all()
    fit = fit_log_linear(one_chunk(equal, targets), 2)
    assert fit.gap <= 1e-9 and fit.weights[1] == 0
    kept = without_lone_reserves(log_dist[[0, 1]])
    assert (kept == log_dist[[0, 1]]).all()
    with np.errstate(divide="ignore"):
        mixture = LogLinear([Fixed(np.exp(log_dist[k, :1]), 1) for k in (0, 3)], fit.weights)
    assert mixture.log_dist(np.array([[0]]))[0, -1] == -np.inf


def test_no_member_is_of_use() -> None:
    log_dist, targets = members_of_no_use()
    fit = fit_log_linear(one_chunk(log_dist[1:2], targets), 1)
    assert fit.gap <= 1e-9 and fit.weights.tolist() == [0]


def test_the_same_member_twice() -> None:
    log_dist, targets = members_of_no_use()
    fit = fit_log_linear(one_chunk(log_dist[[0, 0, 2]], targets), 3)
    alone = fit_log_linear(one_chunk(log_dist[[0, 2]], targets), 2)
    assert fit.gap <= 1e-9
    assert fit.weights[:2].sum() == pytest.approx(alone.weights[0], abs=1e-3)


def test_too_few_steps_are_told() -> None:
    log_dist, targets = members_of_no_use()
    for most in (1, 2, 3):
        fit = fit_log_linear(one_chunk(log_dist[:3], targets), 3, iterations=most)
        assert fit.gap > 1e-9 and fit.iterations == most


def two_words(first: float, targets: list[int]) -> Chunks:
    """One member that gives the first of two words probability `first` before each target."""
    return one_chunk(np.log(np.full((1, len(targets), 2), [first, 1 - first])), np.array(targets))


def test_the_gap_by_hand() -> None:
    # p = (3/4, 1/4) to the power of w, whose log odds are a = w ln 3; one of two targets is the first word. At w = 1
    # the gradient is ln 3 (1/2 - 3/4), the Hessian -3/16 ln^2 3; the step of -4 / (3 ln 3) ends at the bound, 0, where
    # the quadratic model has gained ln 3 / 4 - 3/32 ln^2 3.
    fit = fit_log_linear(two_words(3 / 4, [0, 1]), 1, iterations=1)
    assert (fit.weights.tolist(), fit.iterations) == ([1], 1)
    assert fit.value == pytest.approx((math.log(3 / 4) + math.log(1 / 4)) / 2)
    assert fit.gap == pytest.approx(math.log(3) / 4 - 3 / 32 * math.log(3) ** 2)


def test_a_step_that_loses_is_halved() -> None:
    # The member is surer than its nine hits in ten allow: its log odds are 5, and those of the optimum ln 9. Newton's
    # step from w = 1 ends at the bound, 0, which is worse; half of it is better.
    sure = 1 / (1 + math.exp(-5))
    fit = fit_log_linear(two_words(sure, [0] * 9 + [1]), 1)
    assert fit.weights[0] == pytest.approx(math.log(9) / 5, abs=1e-5)
    assert fit.value == pytest.approx(0.9 * math.log(0.9) + 0.1 * math.log(0.1)) and fit.gap <= 1e-9
    assert fit.iterations < 10


def test_a_step_that_gains_nothing_ends_the_search() -> None:
    # Seven of ten are the first word: at w = 1 a gradient of ln 3 (0.7 - 0.75) and a Hessian of -3/16 ln^2 3, so that
    # the step would gain 0.05^2 / (2 3/16). But all later reads give a lower likelihood, wherever the step ends.
    reads = iter([two_words(3 / 4, [0] * 7 + [1] * 3), *[two_words(3 / 4, [1, 1])] * 99])
    fit = fit_log_linear(lambda: next(reads)(), 1)
    assert (fit.weights.tolist(), fit.iterations, fit.gap) == ([1], 1, pytest.approx(1 / 150))
    assert fit.value == pytest.approx(0.7 * math.log(3 / 4) + 0.3 * math.log(1 / 4))


def test_a_variable_that_becomes_negative_is_fixed_again() -> None:
    # x1 is freed first, to 2; with x2 free the optimum is (-3, 10), beyond the bound. On the line there from (2, 0), x1
    # is 0 at (0, 4); of x2 alone 1.5 x - 0.15 x^2 is highest at 5, and there the gradient of x1 is 2 - 2.5.
    x = bounded_optimum(np.array([[1, 0.5], [0.5, 0.3]]), np.array([2, 1.5]))
    assert x.tolist() == [0, pytest.approx(5)]
    # x3 takes part in nothing.
    curvature = np.array([[1, 0.5, 0], [0.5, 0.3, 0], [0, 0, 4]])
    assert bounded_optimum(curvature, np.array([2, 1.5, 1])).tolist() == [0, pytest.approx(5), pytest.approx(0.25)]
    assert bounded_optimum(curvature, np.array([-2, 0, -1])).tolist() == [0, 0, 0]
    # In whatever unit the likelihood is.
    for unit in (1e-15, 1e12):
        found = bounded_optimum(unit * curvature, unit * np.array([2, 1.5, 1]))
        assert found.tolist() == [0, pytest.approx(5), pytest.approx(0.25)]


@pytest.mark.parametrize("seed", range(6))
def test_bounded_optimum_is_the_best_of_all_choices_of_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 3 if seed % 2 else 6))  # singular where 3
    assert_best(root @ root.T, root @ rng.normal(size=root.shape[1]))


def test_bounded_optimum_of_variables_that_are_much_alike() -> None:
    # Such ones become negative again and again, several at once.
    rng = np.random.default_rng(0)
    for _ in range(100):
        root = 1 + 0.3 * rng.normal(size=(4, 6))
        assert_best(root @ root.T, root @ (1 + rng.normal(size=6)))


def assert_best(curvature: np.ndarray, slope: np.ndarray) -> None:
    """Assert that bounded_optimum is not worse than the optimum of any choice of variables inside their bounds."""
    x = bounded_optimum(curvature, slope)
    found = slope @ x - x @ curvature @ x / 2
    best = 0.0
    for free in chain.from_iterable(combinations(range(4), size) for size in range(1, 5)):
        at = np.zeros(4)
        at[list(free)] = np.linalg.lstsq(curvature[np.ix_(free, free)], slope[list(free)], rcond=1e-12)[0]
        if (at >= 0).all():
            best = max(best, slope @ at - at @ curvature @ at / 2)
    assert (x >= 0).all() and found == pytest.approx(best, abs=1e-9)
