"""Paired tests against what can be counted out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.evaluation.significance import (
    compare,
    draw,
    perplexity_interval,
    politis_white,
    resampled_units,
    sums_of_random_signs,
)
from lmtool.system.arrays import FloatArray, IntArray

# Ten sentences of one token: the second model's log-probability is lower by 1 in seven of them, and higher in three.
TEN = np.array([[-2.0] * 10, [-3.0] * 7 + [-1.0] * 3])


def test_both_p_of_ten_sentences_whose_draws_can_be_counted_out() -> None:
    (found,) = compare(TEN, np.arange(11), resamples=20_000, seed=1)
    assert found is not None and found.p_bootstrap is not None and found.block == 1
    assert found.perplexity == pytest.approx(math.exp(2.4) - math.exp(2))
    # Of the 2^10 choices of signs |sum| >= 4 where at most 3 or at least 7 are positive: 2 (1 + 10 + 45 + 120).
    assert found.p_randomization == pytest.approx(352 / 1024, abs=0.01)
    # The mean of a draw is 2 k / 10 - 1 with k ~ Bin(10, 0.3), and the observed one -0.4. Deviations are scaled by
    # sqrt(10/9) and by the inverse of the root of chi^2 with 9 degrees of freedom over 9.
    chi_squared = (np.random.default_rng(2).normal(size=(400_000, 9)) ** 2).sum(axis=1)
    want = sum(
        math.comb(10, k)
        * 0.3**k
        * 0.7 ** (10 - k)
        * (abs(k / 5 - 0.6) * np.sqrt(10 / chi_squared) >= 0.4 - 1e-9).mean()
        for k in range(11)
    )
    assert 0.15 < want < 0.35 and found.p_bootstrap == pytest.approx(want, abs=0.01)


def test_randomization_counts_the_text_itself() -> None:
    clear = np.stack([np.zeros(60), np.full(60, -1.0)]) - 1
    (found,) = compare(clear, np.arange(61), resamples=999, seed=1)
    assert found is not None and found.p_randomization == found.p_bootstrap == 1 / 1000


def test_fewer_than_ten_blocks_tell_nothing() -> None:
    # One sentence of three tokens had an interval of width 0, p (bootstrap) = 1e-4 and p (randomization) = 1.
    log_prob = np.array([[-1.0, -2.0, -1.0], [-2.0, -2.5, -1.0]])
    nothing = (None, None, None, None)
    for offsets in ([0, 3], [0, 1, 3]):
        (found,) = compare(log_prob, np.array(offsets), resamples=500, seed=1)
        assert found is not None and found.perplexity == pytest.approx(math.exp(5.5 / 3) - math.exp(4 / 3))
        assert (found.interval, found.p_bootstrap, found.p_randomization, found.block) == nothing
        assert perplexity_interval(log_prob[0], np.array(offsets), resamples=500, seed=1) is None
    nine, ten = (np.arange(sentences + 1) for sentences in (9, 10))
    (found,) = compare(TEN[:, :9], nine, resamples=500, seed=1)
    assert found is not None and found.interval is None
    (found,) = compare(TEN, ten, resamples=500, seed=1)
    assert found is not None and found.interval is not None and found.p_randomization is not None
    # Blocks of 7 of 60 sentences are 8, of 6 they are 10.
    text = np.random.default_rng(0).normal(-3, 1, (2, 60))
    for block, some in ((7, False), (6, True)):
        (found,) = compare(text, np.arange(61), resamples=100, seed=1, block=block)
        assert found is not None and (found.interval is not None) is (found.p_bootstrap is not None) is some
        assert (perplexity_interval(text[0], np.arange(61), resamples=100, seed=1, block=block) is not None) is some


def test_no_p_is_below_what_the_blocks_can_show() -> None:
    # All signs of 10 blocks are alike in 2 of 2^10 exchanges; the bootstrap claims no more.
    clear = np.stack([np.zeros(60), np.full(60, -1.0)]) - 1
    (found,) = compare(clear, np.arange(61), resamples=20_000, seed=1, block=6)
    assert found is not None and found.p_bootstrap == 2 / 2**10
    assert found.p_randomization == pytest.approx(2 / 2**10, abs=0.001)


def test_draws_are_even_and_paired() -> None:
    values = np.column_stack([np.eye(5), np.arange(5)])
    found = draw(values, 4_000, np.random.default_rng(3))
    counts = found[:, :5]
    np.testing.assert_array_equal(counts.sum(axis=1), 5)
    np.testing.assert_allclose(found[:, 5], counts @ np.arange(5))  # the same rows for every column
    np.testing.assert_allclose(counts.mean(axis=0), 1, atol=0.06)  # 4 standard errors
    np.testing.assert_allclose(counts.var(axis=0), 0.8, rtol=0.1)  # binomial: 5 * 1/5 * 4/5
    signs = sums_of_random_signs(np.eye(3), 1_001, np.random.default_rng(3))
    assert signs.shape == (1_001, 3) and set(np.unique(signs)) == {-1, 1}
    np.testing.assert_allclose(signs.mean(axis=0), 0, atol=0.13)


def test_draws_follow_splitmix64() -> None:
    # The first numbers of Vigna's splitmix64.c for two seeds, as fractions of 2^64: 0.350, 0.174, 0.532, 0.249, 0.890
    # for 1234567, and 0.883, 0.432, 0.026, 0.971, 0.106 for 0; times five they are the rows 1 0 2 1 4 and 4 2 0 4 0.
    seeds: Any = SimpleNamespace(integers=lambda *_, **__: np.array([1234567, 0], dtype=np.uint64))
    assert draw(np.eye(5), 2, seeds).tolist() == [[1, 2, 1, 0, 1], [2, 0, 1, 0, 2]]


def test_the_sign_of_every_row_is_drawn() -> None:
    for rows in (8, 9, 17):  # a byte has eight signs
        signs = sums_of_random_signs(np.eye(rows), 1_001, np.random.default_rng(3))
        np.testing.assert_allclose(signs.mean(axis=0), 0, atol=0.16)  # 5 standard errors
        assert (signs[:, 0] != signs[:, -1]).any()


def test_the_interval_of_a_perplexity_by_hand() -> None:
    # Of a hundred sentences of one token, half of them of -1 and half of -3, the mean is -2 with a deviation of 0.1.
    log_prob = np.tile([-1.0, -3.0], 50)
    found = perplexity_interval(log_prob, np.arange(101), resamples=400, seed=1, block=1)
    assert found is not None
    # The quantile of Student's t with 99 degrees of freedom is 1.984, and 100 deviations have 99 of them.
    half = 1.984 * 0.1 * math.sqrt(100 / 99)
    np.testing.assert_allclose(np.log(found), [2 - half, 2 + half], atol=0.04)
    assert found == perplexity_interval(log_prob, np.arange(101), resamples=400, seed=1, block=1)
    log_prob[7] = -np.inf
    assert perplexity_interval(log_prob, np.arange(101), resamples=10, seed=1) is None


def test_the_same_seed_gives_the_same_and_equal_models_do_not_differ() -> None:
    log_prob = np.random.default_rng(0).normal(-3, 1, (2, 400))
    offsets = np.arange(0, 401, 8)
    assert compare(log_prob, offsets, resamples=500, seed=7) == compare(log_prob, offsets, resamples=500, seed=7)
    assert compare(log_prob, offsets, resamples=500, seed=7) != compare(log_prob, offsets, resamples=500, seed=8)
    (found,) = compare(log_prob[[0, 0]], offsets, resamples=500, seed=7)
    assert found is not None
    assert (found.perplexity, found.interval, found.p_bootstrap, found.p_randomization) == (0, (0, 0), 1, 1)


def test_p_is_uniform_where_there_is_no_difference() -> None:
    rng = np.random.default_rng(5)
    below = [
        [found.p_bootstrap < 0.1, found.p_randomization < 0.1]
        for _ in range(300)
        if (found := compare(rng.normal(-3, 1, (2, 200)), np.arange(0, 201, 4), resamples=200, seed=1)[0])
        and found.p_bootstrap is not None
        and found.p_randomization is not None
    ]
    assert len(below) == 300
    np.testing.assert_allclose(np.mean(below, axis=0), 0.1, atol=0.06)


def test_a_model_that_allows_not_every_token_has_no_difference() -> None:
    log_prob = np.array([[-1.0, -2.0] * 5, [-1.0] * 9 + [-np.inf], [-2.0, -1.5] * 5])
    first, second = compare(log_prob, np.arange(11), resamples=100, seed=1)
    assert first is None and second is not None and second.interval is not None


def test_units_of_the_setting_block() -> None:
    sentences, none = np.array([0, 3, 5]), np.array([0, 45])
    for block, length in (("auto", None), ("sentence", 1), (7, 7)):
        assert resampled_units(sentences, block)[0] is sentences and resampled_units(sentences, block)[1:] == (
            length,
            1,
        )
    units, length, size = resampled_units(none, "auto")
    assert (units.tolist(), length, size) == ([0, 20, 40, 45], None, 20)
    assert resampled_units(np.array([0, 40]), "auto")[0].tolist() == [0, 20, 40]
    units, length, size = resampled_units(none, 7)
    assert (units.tolist(), length, size) == (list(range(46)), 7, 1)
    with pytest.raises(UserError, match="block=sentence: the text has no sentences, or one: use block=auto or"):
        resampled_units(none, "sentence")


def autoregressive(rng: np.random.Generator, shape: tuple[int, int], phi: float) -> FloatArray:
    """Series of variance 1, each value phi times the one before plus noise: `[R, N]`."""
    values = rng.normal(size=shape)
    for k in range(1, shape[1]):
        values[:, k] = phi * values[:, k - 1] + math.sqrt(1 - phi * phi) * values[:, k]
    return values


def politis_white_by_the_paper(x: FloatArray) -> float:
    """Politis & White (2004), section 3.2 and footnote c, with D_SB = 2 g(0)^2 of Patton, Politis & White (2009)."""
    n, mean = len(x), x.mean()

    def r(k: int) -> float:
        return float(sum((x[t] - mean) * (x[t + k] - mean) for t in range(n - k)) / n)

    def flat_top(t: float) -> float:
        return 1.0 if abs(t) <= 0.5 else 2 * (1 - abs(t)) if abs(t) <= 1 else 0.0

    k_n, c = max(5, math.ceil(math.sqrt(math.log10(n)))), 2
    m_max = math.ceil(math.sqrt(n)) + k_n
    rho = [r(k) / r(0) for k in range(m_max + k_n + 1)]
    bound = c * math.sqrt(math.log10(n) / n)
    m = next(m for m in range(m_max + 1) if all(abs(rho[m + k]) < bound for k in range(1, k_n + 1)))
    big_m = min(2 * m, m_max)
    if big_m == 0:
        return 1.0
    g = sum(flat_top(k / big_m) * abs(k) * r(abs(k)) for k in range(-big_m, big_m + 1))
    g_0 = sum(flat_top(k / big_m) * r(abs(k)) for k in range(-big_m, big_m + 1))
    length: float = (2 * g**2 / (2 * g_0**2)) ** (1 / 3) * n ** (1 / 3)
    return min(max(length, 1), 3 * math.sqrt(n), n / 3)


def test_block_lengths_are_those_of_politis_and_white() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=1_000)
    moving = np.convolve(noise, np.ones(6), "valid")
    series = [*(autoregressive(rng, (1, n), phi)[0] for n, phi in ((400, 0.4), (700, 0.8), (400, -0.5))), noise, moving]
    found = [politis_white(x) for x in series]
    assert found == pytest.approx([politis_white_by_the_paper(x) for x in series], rel=1e-9)
    assert found[3] == 1 < found[0] < found[1] and found[4] > 5
    # The optimum of an autoregressive series is (2 phi / (1 - phi^2))^(2/3) N^(1/3): 2.703 * 30.37 here.
    assert politis_white(autoregressive(rng, (1, 28_000), 0.8)[0]) == pytest.approx(82.0, rel=0.2)
    assert politis_white(np.full(100, 0.3)) == politis_white(np.zeros(60)) == 1  # two equal models
    assert politis_white(np.tile([1.0, 1.0, -1.0], 40)) == pytest.approx(3 * 120**0.5)  # its bound


def test_draws_in_blocks() -> None:
    rng = np.random.default_rng(3)
    # Of two rows, blocks of 2 on average: the second draw begins a block with a probability of 1/2, and is the same row
    # as the first then in half of all cases; the row that follows the last is the first.
    pairs = draw(np.eye(2), 40_000, rng, block=2)
    assert (pairs[:, 0] == 1).mean() == pytest.approx(3 / 4, abs=0.01)
    rows = draw(np.eye(30), 20_000, rng, block=5)
    np.testing.assert_array_equal(rows.sum(axis=1), 30)
    np.testing.assert_allclose(rows.mean(axis=0), 1, atol=0.06)
    # The variance of sqrt(N) times the mean: c_0 + 2 sum over lags k of (1 - k/N) q^k c_k, with circular covariances c
    # and q = 1 - 1/5 (Politis & Romano 1994, section 3); c_k = (-1)^k for rows in which 1 and -1 alternate.
    k = np.arange(1, 30)
    want = 1 + 2 * ((1 - k / 30) * 0.8**k * (-1.0) ** k).sum()
    found = draw(np.tile([1.0, -1.0], 15)[:, None], 40_000, rng, block=5)[:, 0].var() / 30
    assert 0.1 < want < 0.2 and found == pytest.approx(want, rel=0.04)


def test_coverage_and_level_on_dependent_sentences() -> None:
    # Independent draws of sentences cover 33 % here, and find a difference that is not there in 67 % of all texts.
    rng = np.random.default_rng(11)
    texts, sentences = 600, 3_000
    lengths = rng.integers(5, 40, sentences)
    offsets = np.append(0, np.cumsum(lengths))
    shared = 0.5 * autoregressive(rng, (texts, sentences), 0.9)
    apart = 0.3 * autoregressive(rng, (texts, sentences), 0.9)
    covered, found = [], []
    for base, other in zip(shared - 4.6, shared + apart - 4.6, strict=True):
        log_prob = np.repeat(np.stack([base, other]), lengths, axis=1)
        (difference,) = compare(log_prob, offsets, resamples=500, seed=1)
        interval = perplexity_interval(log_prob[0], offsets, resamples=500, seed=1)
        assert difference is not None and interval is not None and difference.interval is not None
        assert difference.p_bootstrap is not None and difference.p_randomization is not None
        covered.append(
            [difference.interval[0] <= 0 <= difference.interval[1], interval[0] <= math.exp(4.6) <= interval[1]]
        )
        found.append([difference.p_bootstrap <= 0.05, difference.p_randomization <= 0.05])
    np.testing.assert_allclose(np.mean(covered, axis=0), 0.95, atol=0.02)
    np.testing.assert_allclose(np.mean(found, axis=0), 0.05, atol=0.02)


def test_dependence_too_weak_between_neighbors_to_be_significant_is_found() -> None:
    # Correlations of 0.04 between sentences, up to 200 apart, make the variance of the mean eight times as large.
    rng = np.random.default_rng(4)
    weak = 0.2 * np.repeat(rng.normal(size=15), 200) + rng.normal(size=3_000)
    assert politis_white(weak) == 1
    log_prob = np.stack([np.full(3_000, -4.0), weak - 4])
    (found,) = compare(log_prob, np.arange(3_001), resamples=200, seed=1)
    (single,) = compare(log_prob, np.arange(3_001), resamples=200, seed=1, block=1)
    assert found is not None and single is not None and found.block is not None and found.block > 100
    assert found.interval is not None and single.interval is not None
    assert np.diff(found.interval) > 2 * np.diff(single.interval)
    # In another order the sentences are independent, and drawn one by one.
    shuffled = np.stack([log_prob[0], rng.permutation(log_prob[1])])
    (found,) = compare(shuffled, np.arange(3_001), resamples=200, seed=1)
    (single,) = compare(shuffled, np.arange(3_001), resamples=200, seed=1, block=1)
    assert found == single and single is not None and single.block == 1


def plain_interval(
    log_prob: FloatArray, offsets: IntArray, resamples: int
) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Return the interval of a difference of perplexities, its p-values without a floor, and the block length.

    Politis & White (2004, 2009) for the length, also of sums of 2, 4, 8 ... sentences, times three and at most a tenth
    of the text; Politis & Romano (1994) for the draws, sentence by sentence; Efron & Tibshirani (1993, ch. 16) and
    Noreen (1989) for the p-values.
    """
    rng = np.random.default_rng(9)
    sums, lengths = np.add.reduceat(log_prob, offsets[:-1], axis=1), np.diff(offsets)
    units, difference = len(lengths), sums[1] - sums[0]
    observed = difference.sum() / lengths.sum()
    influence = difference - observed * lengths
    block, together = 1.0, 1
    while units // together >= 25:
        parts = [influence[k * together : (k + 1) * together].sum() for k in range(units // together)]
        length = politis_white_by_the_paper(np.array(parts))
        block = max(block, 3 * together * length) if length > 1 else block
        together *= 2
    b = min(round(block), units // 10)
    means = []
    for _ in range(resamples):
        row, total, words = 0, np.zeros(2), 0
        for k in range(units):
            row = int(rng.integers(units)) if k == 0 or rng.random() < 1 / b else (row + 1) % units
            total, words = total + sums[:, row], words + int(lengths[row])
        means.append(total / words)
    free = units / b
    t = np.sqrt(free / rng.gamma(free / 2, 2, resamples) / (1 - 2 * b / units))[:, None]
    center = sums.sum(axis=1) / lengths.sum()
    drawn = center + t * (np.array(means) - center)
    low, high = np.quantile(np.exp(-drawn[:, 1]) - np.exp(-drawn[:, 0]), [0.025, 0.975])
    p_bootstrap = float((np.abs(drawn[:, 1] - drawn[:, 0] - observed) >= abs(observed)).mean())
    blocks = np.array([part.sum() for part in np.array_split(difference, round(free))])
    flipped = np.where(rng.random((resamples, len(blocks))) < 0.5, 1, -1) @ blocks
    return (low, high), (p_bootstrap, float((np.abs(flipped) >= abs(blocks.sum()) * (1 - 1e-9)).mean())), b


def test_interval_and_p_are_those_of_a_plain_program() -> None:
    rng = np.random.default_rng(21)
    lengths = rng.integers(5, 40, 400)
    offsets = np.append(0, lengths.cumsum())
    shared, apart = autoregressive(rng, (2, 400), 0.6)
    of_sentence = np.stack([0.5 * shared - 4.6, 0.5 * shared + 0.3 * apart - 4.7])
    log_prob = np.repeat(of_sentence, lengths, axis=1)
    (low, high), p, block = plain_interval(log_prob, offsets, 4_000)
    (found,) = compare(log_prob, offsets, resamples=20_000, seed=1)
    assert found is not None and found.interval is not None and 10 < block == found.block <= 40
    assert found.interval == pytest.approx((low, high), abs=0.05 * (high - low))
    assert 0.01 < p[0] < 0.9 and (found.p_bootstrap, found.p_randomization) == pytest.approx(p, abs=0.03)


def test_a_measured_block_leaves_ten_of_them() -> None:
    drifting = np.stack([np.full(300, -3.0), -3 - np.linspace(0, 1, 300)])
    (found,) = compare(drifting, np.arange(301), resamples=100, seed=1)
    assert found is not None and found.block == 30
