"""Paired significance tests over sentences: is one model better than another, beyond the choice of the text?

Two models that scored the same tokens are compared by the difference of their mean log-probability. As the tokens of a
sentence depend on each other, whole sentences are resampled; in text without sentences, blocks of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.language_model import FloatArray, IntArray

CHUNK = 500  # rows of random signs that are drawn at once


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between a model and another one, the baseline.

    perplexity: the model's minus the baseline's. interval: its 95 % confidence interval, by the percentiles of the
    bootstrap. p_bootstrap, p_randomisation: two-sided p-values of the difference of mean log-probabilities, by the
    paired bootstrap and by approximate randomisation, which exchanges the two models' scores of each sentence at
    random.
    """

    perplexity: float
    interval: tuple[float, float]
    p_bootstrap: float
    p_randomisation: float


def blocks(tokens: int, size: int) -> IntArray:
    """Offsets of blocks of `size` tokens, which take the place of sentences in text without them: int64 `[S + 1]`."""
    return np.append(np.arange(0, tokens, size), tokens)


def compare(log_prob: FloatArray, offsets: IntArray, *, resamples: int, seed: int) -> list[Difference | None]:
    """Compare models with the first of them, the baseline.

    log_prob: natural, `[M, N]`. offsets: `[S + 1]`, where sentences begin, and N. Returns a Difference for each model
    but the first, None where one of the two gives a token probability 0.

    The paired bootstrap is that of Koehn (2004): S sentences are drawn with replacement, the same ones for all models.
    Its p-value is taken around the observed difference, as in Efron & Tibshirani (1993, ch. 16); approximate
    randomisation is that of Noreen (1989). Both count the text itself as one more sample, so that no p-value is 0.
    """
    sums = np.add.reduceat(log_prob, offsets[:-1], axis=1).T  # [S, M]
    possible = np.isfinite(sums.sum(axis=0))
    lengths = np.diff(offsets).astype(np.float64)
    rng = np.random.default_rng(seed)
    drawn = draw(np.column_stack([np.where(possible, sums, 0.0), lengths]), resamples, rng)  # [B, M + 1]
    means = drawn[:, :-1] / drawn[:, -1:]
    flips = exchanged(np.where(possible, sums - sums[:, :1], 0.0), resamples, rng)  # [B, M]
    total = lengths.sum()
    differences: list[Difference | None] = []
    observed_means = sums.sum(axis=0) / total
    for k in range(1, len(log_prob)):
        if not (possible[0] and possible[k]):
            differences.append(None)
            continue
        observed = observed_means[k] - observed_means[0]
        deviations = np.abs((means[:, k] - means[:, 0]) - observed)
        margin = 1e-12 * (1 + abs(observed))  # rounding, where the same sentences are summed in another order
        perplexities = np.exp(-means[:, k]) - np.exp(-means[:, 0])
        low, high = np.quantile(perplexities, [0.025, 0.975])
        differences.append(
            Difference(
                float(np.exp(-observed_means[k]) - np.exp(-observed_means[0])),
                (float(low), float(high)),
                _share(deviations >= abs(observed) - margin),
                _share(np.abs(flips[:, k]) / total >= abs(observed) - margin),
            )
        )
    return differences


def perplexity_interval(
    log_prob: FloatArray, offsets: IntArray, *, resamples: int, seed: int
) -> tuple[float, float] | None:
    """The 95 % confidence interval of a perplexity, by the percentiles of the bootstrap; None where a token has
    probability 0.

    log_prob: natural, `[N]`. offsets: `[S + 1]`, where sentences begin, and N.
    """
    sums = np.add.reduceat(log_prob, offsets[:-1])
    if not np.isfinite(sums).all():
        return None
    rng = np.random.default_rng(seed)
    drawn = draw(np.column_stack([sums, np.diff(offsets).astype(np.float64)]), resamples, rng)  # [B, 2]
    low, high = np.exp(-np.quantile(drawn[:, 0] / drawn[:, 1], [0.975, 0.025]))
    return float(low), float(high)


def _share(extreme: Any) -> float:
    return (1 + int(extreme.sum())) / (1 + len(extreme))


def draw(values: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sums `[B, K]` of S rows of `values` `[S, K]` that are drawn with replacement, B = resamples times."""
    seeds = rng.integers(0, 1 << 63, resamples, dtype=np.uint64)
    sums = np.zeros((resamples, values.shape[1]))
    _draw(np.ascontiguousarray(values), seeds, sums)
    return sums


@numba.njit(cache=True, nogil=True)
def _draw(values: Any, seeds: Any, sums: Any) -> None:
    """With splitmix64 (Steele, Lea & Flood 2014); the high half of each number, as a fraction, times S is the row."""
    rows, columns = values.shape
    for b in range(len(seeds)):
        state = seeds[b]
        for _ in range(rows):
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            row = ((z >> np.uint64(32)) * np.uint64(rows)) >> np.uint64(32)
            for k in range(columns):
                sums[b, k] += values[row, k]


def exchanged(differences: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sums `[B, K]` of differences `[S, K]`, each row with a random sign, B = resamples times."""
    rows = len(differences)
    sums = []
    for first in range(0, resamples, CHUNK):
        count = min(CHUNK, resamples - first)
        raw = np.frombuffer(rng.bytes(count * ((rows + 7) // 8)), dtype=np.uint8).reshape(count, -1)
        chosen = np.unpackbits(raw, axis=1, count=rows).astype(np.float64)
        sums.append(2 * (chosen @ differences) - differences.sum(axis=0))
    return np.concatenate(sums)
