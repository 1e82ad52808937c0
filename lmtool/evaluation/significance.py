"""Is one model better than another, or is it the choice of the text? Paired tests over sentences.

Two models that scored the same tokens are compared by the difference of their mean log-probability. The tokens of a
sentence depend on each other, so that whole sentences are drawn, not tokens; in text without sentences, blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.language_model import FloatArray, IntArray

STEP = 500  # rows of random signs that are drawn at once


@dataclass(frozen=True, slots=True)
class Difference:
    """How a model compares with another, the base.

    perplexity: its perplexity less the base's; interval: that of 95 %, by the bootstrap's percentiles. p_bootstrap:
    two-sided, how often resamples differ from the text by as much as the text differs from no difference.
    p_randomisation: two-sided, how often a difference as large comes about if the two models' scores of each sentence
    are exchanged at random.
    """

    perplexity: float
    interval: tuple[float, float]
    p_bootstrap: float
    p_randomisation: float


def blocks(tokens: int, size: int) -> IntArray:
    """Where blocks of `size` tokens begin, and the end `tokens`: what stands for sentences in text without them."""
    return np.append(np.arange(0, tokens, size), tokens)


def compare(log_prob: FloatArray, offsets: IntArray, *, resamples: int, seed: int) -> list[Difference | None]:
    """Compare models with the first of them.

    log_prob: natural, `[M, N]`. offsets: `[S + 1]`, where sentences begin, and N. Returns a Difference for each model
    but the first, None where one of the two gives a token probability 0.

    The bootstrap is that of Koehn (2004): S sentences are drawn with replacement, the same ones for all models. Its p
    is taken around the difference found, as in Efron & Tibshirani (1993, ch. 16), the randomisation's by Noreen
    (1989); both count the text itself as one more draw, so that none is 0.
    """
    sums = np.add.reduceat(log_prob, offsets[:-1], axis=1).T  # [S, M]
    possible = np.isfinite(sums.sum(axis=0))
    lengths = np.diff(offsets).astype(np.float64)
    rng = np.random.default_rng(seed)
    drawn = draw(np.column_stack([np.where(possible, sums, 0.0), lengths]), resamples, rng)  # [B, M + 1]
    means = drawn[:, :-1] / drawn[:, -1:]
    flips = exchanged(np.where(possible, sums - sums[:, :1], 0.0), resamples, rng)  # [B, M]
    total = lengths.sum()
    found: list[Difference | None] = []
    own = sums.sum(axis=0) / total
    for k in range(1, len(log_prob)):
        if not (possible[0] and possible[k]):
            found.append(None)
            continue
        observed = own[k] - own[0]
        away = np.abs((means[:, k] - means[:, 0]) - observed)
        margin = 1e-12 * (1 + abs(observed))  # the same draws, added up in another order
        perplexities = np.exp(-means[:, k]) - np.exp(-means[:, 0])
        low, high = np.quantile(perplexities, [0.025, 0.975])
        found.append(
            Difference(
                float(np.exp(-own[k]) - np.exp(-own[0])),
                (float(low), float(high)),
                _share(away >= abs(observed) - margin),
                _share(np.abs(flips[:, k]) / total >= abs(observed) - margin),
            )
        )
    return found


def perplexity_interval(
    log_prob: FloatArray, offsets: IntArray, *, resamples: int, seed: int
) -> tuple[float, float] | None:
    """The 95 % interval of one model's perplexity by the bootstrap's percentiles, None where it is infinite.

    log_prob: natural, `[N]`. offsets: `[S + 1]`, where the sentences that are drawn begin, and N.
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
    """Sums `[B, K]` of S rows of `values` `[S, K]` drawn with replacement, B times."""
    seeds = rng.integers(0, 1 << 63, resamples, dtype=np.uint64)
    found = np.zeros((resamples, values.shape[1]))
    _draw(np.ascontiguousarray(values), seeds, found)
    return found


@numba.njit(cache=True, nogil=True)
def _draw(values: Any, seeds: Any, found: Any) -> None:
    """splitmix64 (Steele, Lea & Flood 2014), the high half of each number taken as a share of S."""
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
                found[b, k] += values[row, k]


def exchanged(differences: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sums `[B, K]` of differences `[S, K]`, each row with a sign drawn at random, B times."""
    rows = len(differences)
    found = []
    for first in range(0, resamples, STEP):
        count = min(STEP, resamples - first)
        raw = np.frombuffer(rng.bytes(count * ((rows + 7) // 8)), dtype=np.uint8).reshape(count, -1)
        chosen = np.unpackbits(raw, axis=1, count=rows).astype(np.float64)
        found.append(2 * (chosen @ differences) - differences.sum(axis=0))
    return np.concatenate(found)
