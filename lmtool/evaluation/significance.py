"""Confidence intervals of perplexities and paired significance tests, for text whose sentences depend on each other.

Two models that scored the same tokens are compared by the difference of their mean log-probability. Neighboring
sentences share topic and style, and a cache remembers earlier ones; therefore blocks of consecutive sentences are
resampled, whose length follows from the measured autocorrelation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.errors import UserError
from lmtool.system.arrays import FloatArray, IntArray

SIGNS_PER_CHUNK = 500  # rows of random signs drawn at once
TOKENS_PER_UNIT = 20  # number of tokens per unit in text without sentences
SUCCESSIVE_LAGS = 5  # K_N of Politis & White (2004): max(5, sqrt(log10 N)) is 5 below 10^25 sentences
LENGTH_FACTOR = 3  # measured block lengths are multiplied by this
MIN_UNITS = 25  # minimum number for measuring a block length
MIN_BLOCKS = 10  # minimum per text; the exchange of 10 blocks has no p below 1/512, and fewer are uninformative


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between a model and another one, the baseline.

    perplexity: the model's minus the baseline's. interval: its 95 % confidence interval, by the percentiles of the
    bootstrap. p_bootstrap, p_randomization: two-sided p-values of the difference of mean log-probabilities, by the
    paired bootstrap and by approximate randomization, which exchanges the two models' scores of each block at random.
    block: mean number of units per block. All fields except perplexity are None in a text of fewer than MIN_BLOCKS
    blocks.
    """

    perplexity: float
    interval: tuple[float, float] | None = None
    p_bootstrap: float | None = None
    p_randomization: float | None = None
    block: int | None = None


def resampled_units(offsets: IntArray, block: int | str) -> tuple[IntArray, int | None, int]:
    """Return, for the setting `block`, the offsets of the units of blocks, int64 `[S + 1]`, the mean number of units
    per block, None if it is to be measured, and the number of sentences or tokens per unit.

    offsets: `[S + 1]`, where sentences begin, and N; `[0, N]` without sentences, where a unit is a token, or, with
    block=auto, 20 consecutive tokens. Raises UserError for block=sentence in text without sentences.
    """
    length = block if isinstance(block, int) else 1 if block == "sentence" else None
    if len(offsets) > 2:
        return offsets, length, 1
    if block == "sentence":
        raise UserError("block=sentence: the text has no sentences, or one: use block=auto or a number of tokens")
    size = TOKENS_PER_UNIT if length is None else 1
    return np.append(np.arange(0, offsets[-1], size), offsets[-1]), length, size


def compare(
    log_prob: FloatArray, offsets: IntArray, *, resamples: int, seed: int, block: int | None = None
) -> list[Difference | None]:
    """Compare models with the first of them, the baseline.

    log_prob: natural log-probabilities, `[M, N]`. offsets: `[S + 1]`, where units (sentences) begin, and N. block: the
    mean number of units per block; None: measured for each pair of models. Returns a Difference for each model except
    the first, None if one of the two models gives a token probability 0.

    The paired bootstrap draws the same blocks for both models (Koehn 2004, with the blocks of Politis & Romano 1994);
    pairs with equal block lengths have the same draws. Its p-value is taken around the observed difference, as in
    Efron & Tibshirani (1993, ch. 16). Approximate randomization (Noreen 1989) exchanges equal blocks, which holds its
    level also for few of them (Canay, Romano & Shaikh 2017). Both count the text itself as one more sample, so that no
    p-value is 0. K blocks have 2^K exchanges, and neither p-value is below the 2 / 2^K that these can show.
    """
    sums = np.add.reduceat(log_prob, offsets[:-1], axis=1)  # [M, S]
    lengths = np.diff(offsets).astype(np.float64)
    return [
        _difference(sums[0], other, lengths, resamples, seed, block) if np.isfinite(sums[0] + other).all() else None
        for other in sums[1:]
    ]


def _difference(
    baseline: FloatArray, other: FloatArray, lengths: FloatArray, resamples: int, seed: int, block: int | None
) -> Difference:
    differences, total = other - baseline, lengths.sum()
    observed = differences.sum() / total
    perplexities = np.exp([-baseline.sum() / total, -other.sum() / total])
    block = _block_length(differences - observed * lengths, block)
    if len(lengths) < MIN_BLOCKS * block:
        return Difference(float(perplexities[1] - perplexities[0]))
    means = _drawn_means(np.column_stack([baseline, other]), lengths, resamples, seed, block)  # [B, 2]
    low, high = np.quantile(np.exp(-means[:, 1]) - np.exp(-means[:, 0]), [0.025, 0.975])
    starts = np.linspace(0, len(differences), round(len(differences) / block), endpoint=False).astype(np.int64)
    rng = np.random.default_rng([seed, len(starts)])
    flips = sums_of_random_signs(np.add.reduceat(differences, starts)[:, None], resamples, rng)[:, 0] / total
    least = 2.0 ** (1 - len(starts))
    margin = 1e-12 * (1 + abs(observed))  # rounding of the same sentences summed in a different order
    return Difference(
        float(perplexities[1] - perplexities[0]),
        (float(low), float(high)),
        max(least, _share(np.abs(means[:, 1] - means[:, 0] - observed) >= abs(observed) - margin)),
        max(least, _share(np.abs(flips) >= abs(observed) - margin)),
        block,
    )


def perplexity_interval(
    log_prob: FloatArray, offsets: IntArray, *, resamples: int, seed: int, block: int | None = None
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a perplexity, by the percentiles of the bootstrap; None if a token has
    probability 0, and in a text of fewer than MIN_BLOCKS blocks.

    log_prob: natural log-probabilities, `[N]`. offsets: `[S + 1]`, where units (sentences) begin, and N. block: the
    mean number of units per block; None: measured.
    """
    sums, lengths = np.add.reduceat(log_prob, offsets[:-1]), np.diff(offsets).astype(np.float64)
    if not np.isfinite(sums).all():
        return None
    block = _block_length(sums - sums.sum() / lengths.sum() * lengths, block)
    if len(lengths) < MIN_BLOCKS * block:
        return None
    means = _drawn_means(sums[:, None], lengths, resamples, seed, block)
    low, high = np.exp(-np.quantile(means, [0.975, 0.025]))
    return float(low), float(high)


def _drawn_means(sums: FloatArray, lengths: FloatArray, resamples: int, seed: int, block: int) -> FloatArray:
    """Return means per token `[B, K]` of texts that are drawn in blocks, from sums `[S, K]` and lengths `[S]`.

    With b units per block the variance of the draws is too small by 2 b / S, as deviations are taken from the text's
    own mean, and is known only as well as with S / b degrees of freedom (its variance is 2 b / S: Patton et al. 2009).
    Deviations are scaled for both, which makes normal draws t-distributed: the wider critical values that long blocks
    need (Kiefer & Vogelsang 2005; Lazarus, Lewis, Stock & Watson 2018). With single units, the variance is too small by
    1 / S, with S - 1 degrees of freedom, as in Student's test.
    """
    rng = np.random.default_rng(seed)
    drawn = draw(np.column_stack([sums, lengths]), resamples, rng, block)  # [B, K + 1]
    means: FloatArray = drawn[:, :-1] / drawn[:, -1:]
    units = len(sums)
    free, bias = (units / block, 2 * block / units) if block > 1 else (units - 1, 1 / units)
    center = sums.sum(axis=0) / lengths.sum()
    means = center + (means - center) * np.sqrt(free / rng.chisquare(free, (resamples, 1)) / (1 - bias))
    return means


def _block_length(influence: FloatArray, block: int | None) -> int:
    """Return the mean number of units per block: `block`, or, if it is None, the measured one.

    influence: `[S]`, of each unit on a mean per token: sum - mean * tokens. The length is the largest that
    `politis_white` finds in it and in sums of 2, 4, 8 ... neighbors, which reveal long dependence that is too weak to
    be significant between single sentences. That length minimizes the error of a variance; with three times the length,
    intervals have their nominal coverage (`./scripts/measure significance`). A measured length leaves ten blocks.
    """
    units = len(influence)
    if block is None:
        longest, together = 1.0, 1
        while units // together >= MIN_UNITS:
            length = politis_white(influence[: units // together * together].reshape(-1, together).sum(axis=1))
            if length > 1:
                longest = max(longest, LENGTH_FACTOR * together * length)
            together *= 2
        block = max(1, min(round(longest), units // MIN_BLOCKS))
    return block


def politis_white(series: FloatArray) -> float:
    """Return a mean block length of the stationary bootstrap of a series `[N]`, 1 without significant autocorrelation.

    Politis & White (2004), corrected by Patton, Politis & White (2009): (2 G^2 / D)^(1/3) N^(1/3) with D = 2 g(0)^2,
    where G and g(0) are sums of |k| R(k) and R(k) over lags k from -2 m to 2 m under the flat-top window, and m is the
    smallest lag after which five in a row are insignificant; at most min(3 sqrt(N), N / 3).
    """
    count = len(series)
    spectrum = np.abs(np.fft.rfft(series - series.mean(), 2 * count)) ** 2
    most = min(math.ceil(math.sqrt(count)) + SUCCESSIVE_LAGS, count - 1 - SUCCESSIVE_LAGS)  # maximum of m
    covariances = np.fft.irfft(spectrum, 2 * count)[: most + SUCCESSIVE_LAGS + 1] / count  # R(0), R(1), ...
    small = np.abs(covariances[1:]) <= 2 * math.sqrt(math.log10(count) / count) * covariances[0]
    runs = np.lib.stride_tricks.sliding_window_view(small, SUCCESSIVE_LAGS).all(axis=1)
    lag = int(runs.argmax()) if runs.any() else int(np.flatnonzero(~small).max()) + 1
    lags = np.arange(1, min(2 * lag, most) + 1)
    weighted = np.minimum(1, 2 * (1 - lags / max(len(lags), 1))) * covariances[lags]
    variance = covariances[0] + 2 * weighted.sum()
    longest = min(3 * math.sqrt(count), count / 3)
    if variance <= 0:
        return 1.0 if lag == 0 else longest
    length = ((2 * (lags * weighted).sum() / variance) ** 2 * count) ** (1 / 3)
    return float(min(max(length, 1.0), longest))


def _share(extreme: Any) -> float:
    return (1 + int(extreme.sum())) / (1 + len(extreme))


def draw(values: FloatArray, resamples: int, rng: np.random.Generator, block: int = 1) -> FloatArray:
    """Return sums `[B, K]` of S rows of `values` `[S, K]`, drawn with replacement in blocks, B = resamples times.

    The stationary bootstrap (Politis & Romano 1994): a block begins anywhere, its length is geometrically distributed
    with the mean `block`, and the first row follows the last.
    """
    seeds = rng.integers(0, 1 << 63, resamples, dtype=np.uint64)
    sums = np.zeros((resamples, values.shape[1]))
    before = np.zeros((2 * len(values) + 1, values.shape[1]))  # sums of the rows before each, twice around
    np.cumsum(np.concatenate([values, values]), axis=0, out=before[1:])
    _draw(before, seeds, -np.inf if block == 1 else math.log1p(-1 / block), sums)
    return sums


@numba.njit(cache=True, nogil=True)
def _draw(before: Any, seeds: Any, log_continue: float, sums: Any) -> None:
    """Draw blocks and add up their sums, by differences of `before`: one step per block instead of one per row.

    With splitmix64 (Steele, Lea & Flood 2014): the high half of each number, as a fraction, times S is the row where a
    block begins; the low half gives the block's length, by the inverse of the distribution function.
    """
    rows, columns = len(before) // 2, before.shape[1]
    for b in range(len(seeds)):
        state = seeds[b]
        left = rows
        while left > 0:
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            first = int(((z >> np.uint64(32)) * np.uint64(rows)) >> np.uint64(32))
            fraction = (float((z ^ (z >> np.uint64(31))) & np.uint64(0xFFFFFFFF)) + 0.5) / 4294967296.0
            length = min(left, 1 + int(math.log(fraction) / log_continue))
            for k in range(columns):
                sums[b, k] += before[first + length, k] - before[first, k]
            left -= length


def sums_of_random_signs(differences: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Return sums `[B, K]` of differences `[S, K]`, each row with a random sign, B = resamples times."""
    rows = len(differences)
    sums = []
    for first in range(0, resamples, SIGNS_PER_CHUNK):
        count = min(SIGNS_PER_CHUNK, resamples - first)
        raw = np.frombuffer(rng.bytes(count * ((rows + 7) // 8)), dtype=np.uint8).reshape(count, -1)
        chosen = np.unpackbits(raw, axis=1, count=rows).astype(np.float64)
        sums.append(2 * (chosen @ differences) - differences.sum(axis=0))
    return np.concatenate(sums)
