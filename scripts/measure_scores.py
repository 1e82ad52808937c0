"""Scores for ./scripts/measure: mixtures of every kind, the significance of differences."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import KN5, ensemble, evaluate, head, lmtool, rounded, row, train

from lmtool.evaluation.significance import MIN_UNITS, compare, draw, perplexity_interval, politis_white
from lmtool.evaluation.token_scores import TokenScores


def mixtures() -> None:
    """PTB: mixtures of every kind, with caches, and the tests of compare (ten minutes)"""
    train("kn5", *KN5)
    train("wb3", "model=ngram", "model.order=3", "smoother=witten_bell", "data=ptb")
    train("hs", "model=hsoftmax", "tree=huffman", "data=ptb", "training.epochs=2")
    order_5, network = evaluate("kn5")["perplexity"], evaluate("hs", "valid", "accuracy=true")["perplexity"]
    print(f"kn5 {order_5:.4f}, hs {network:.2f}")
    fitted = {
        "kn5+wb3": ["kn5,wb3"],
        "kn5+unigram": ["kn5", "cache=unigram"],
        "linear": ["kn5,hs"],
        "classes": ["kn5,hs", "method=classes"],
        "unigram": ["kn5,hs", "cache=unigram"],
        "neural": ["kn5,hs", "cache=neural"],
        "log_linear": ["kn5,hs", "method=log_linear"],
    }
    for name, (runs, *words) in fitted.items():
        found = ensemble(name, [runs], *words)
        print(f"{name}: {found['perplexity']:.4f}, weights {rounded(found['weights'], 4)}", end=", ")
        print(f"gap {found['fit']['gap']:.1e}; {found['command_seconds']:.1f} s")
    lmtool("compare", "runs=[linear,classes,log_linear]", "hydra.run.dir=table")
    print(Path("table/compare.md").read_text())
    offsets, log_prob = _scores("linear", "classes")
    compare(log_prob, offsets, resamples=100, seed=1)
    start = time.perf_counter()
    compare(log_prob, offsets, resamples=10_000, seed=1)
    print(f"both tests of two models, 10,000 draws each: {time.perf_counter() - start:.2f} s")


def _scores(*runs: str) -> tuple[Any, Any]:
    """Return the offsets of sentences and the log-probabilities of tokens `[runs, tokens]`."""
    kept = [TokenScores.open(Path(run) / "scores.h5") for run in runs]
    return kept[0].tokens.offsets, np.stack([found.log_prob for found in kept])


def significance() -> None:
    """simulated scores and PTB: what intervals cover, and how often equal models seem to differ"""
    for name, smoother in (("kn5", "modified_kneser_ney"), ("wb5", "witten_bell")):
        train(name, *KN5, f"smoother={smoother}")
        evaluate(name)
    ensemble("cache", ["kn5"], "cache=unigram")
    for block in ("sentence", "50", "auto"):
        lmtool("compare", "runs=[kn5-valid,cache,wb5-valid]", f"block={block}", "hydra.run.dir=table")
        print(Path("table/compare.md").read_text())
    offsets, log_prob = _scores("kn5-valid", "wb5-valid")
    order = np.random.default_rng(1).permutation(len(offsets) - 1)
    rows = np.concatenate([np.arange(offsets[k], offsets[k + 1]) for k in order])
    shuffled = np.append(0, np.diff(offsets)[order].cumsum())
    print("shuffled:", *compare(log_prob[:, rows], shuffled, resamples=10_000, seed=1))
    texts = int(os.environ.get("TEXTS", 1_000))
    head("sentences", "dependence", "single: covers, %", "p <= .05, %", "plain: covers, %", *COLUMNS, numbers=10)
    works = [(kind, 3_000) for kind in _dependence(np.random.default_rng(0), 1, 10)]
    works += [("0.1 of AR(1), 0.95", 1_000), *((LIKE_PTB, sentences) for sentences in (1_000, 200, 50, 20))]
    for kind, sentences in works:
        single = _simulated(kind, texts // 5, sentences, 1)
        covered = f"{100 * _plain_coverage(kind, texts, sentences):.1f}"
        row(f"{sentences:,}", kind, single[0], single[2], covered, *_simulated(kind, texts, sentences, None))
    head("blocks", "dependence", "block", *COLUMNS, numbers=8)
    for blocks in (5, 10, 20, 50):
        for kind, block in (("independent", 1), ("AR(1), 0.8", 60)):
            row(blocks, kind, block, *_simulated(kind, texts, blocks * block, block))


COLUMNS = ("covers, %", "perplexity: covers, %", "p (bootstrap) <= .05, %", "p (randomization) <= .05, %")
COLUMNS += ("one p <= .05, %", "median block")
LIKE_PTB = "like PTB"


def _pairs(kind: str, texts: int, sentences: int) -> Iterator[tuple[Any, Any]]:
    """Yield the offsets and the scores `[2, N]` of texts, of two models that do not differ."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(5, 40, sentences)
    offsets = np.append(0, lengths.cumsum())
    for _ in range(0, texts, 100):
        shared, apart = (_dependence(rng, min(100, texts), sentences)[kind]() for _ in range(2))
        for base, other in zip(0.5 * shared - 4.6, 0.5 * shared + 0.3 * apart - 4.6, strict=True):
            yield offsets, np.repeat(np.stack([base, other]), lengths, axis=1)


def _simulated(kind: str, texts: int, sentences: int, block: int | None) -> list[str]:
    """Return COLUMNS: percentages of texts whose intervals of a difference and of a perplexity cover the truth, whose
    p are at most 0.05, and of which one p is and the other is not; the median block length.
    """
    rows, blocks = [], []
    for offsets, log_prob in _pairs(kind, texts, sentences):
        (found,) = compare(log_prob, offsets, resamples=1_000, seed=1, block=block)
        interval = perplexity_interval(log_prob[0], offsets, resamples=1_000, seed=1, block=block)
        assert found is not None
        if found.interval is None or interval is None:
            return ["too few sentences to tell", *"-----"]
        covers = [low <= truth <= high for (low, high), truth in ((found.interval, 0), (interval, np.exp(4.6)))]
        small = [p is not None and p <= 0.05 for p in (found.p_bootstrap, found.p_randomization)]
        rows.append([*covers, *small, small[0] != small[1]])
        blocks.append(found.block or 0)
    return [*(f"{100 * share:.1f}" for share in np.mean(rows, axis=0)), f"{np.median(blocks):.0f}"]


def _plain_coverage(kind: str, texts: int, sentences: int) -> float:
    """Return the share of texts whose difference is covered by the percentiles of the stationary bootstrap with Politis
    and White's block length alone: no sums of neighbors, no factor, no degrees of freedom.
    """
    covers = []
    for offsets, log_prob in _pairs(kind, texts, sentences):
        sums, lengths = np.add.reduceat(log_prob[1] - log_prob[0], offsets[:-1]), np.diff(offsets)
        length = politis_white(sums - sums.sum() / lengths.sum() * lengths) if sentences >= MIN_UNITS else 1
        drawn = draw(np.column_stack([sums, lengths]), 1_000, np.random.default_rng(1), max(1, round(length)))
        low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
        covers.append(low <= 0 <= high)
    return float(np.mean(covers))


def _dependence(rng: Any, texts: int, sentences: int) -> dict[str, Callable[[], Any]]:
    """Draw scores of sentences `[texts, sentences]` of mean 0 and variance 1, by the kind of dependence."""

    def noise(count: int) -> Any:
        return rng.normal(size=(texts, count))

    def autoregressive(phi: float) -> Any:
        values = noise(sentences).T.copy()
        for k in range(1, sentences):
            values[k] = phi * values[k - 1] + np.sqrt(1 - phi * phi) * values[k]
        return values.T

    def moving_average(width: int) -> Any:
        sums = np.pad(noise(sentences + width - 1).cumsum(axis=1), ((0, 0), (1, 0)))
        return (sums[:, width:] - sums[:, :-width]) / np.sqrt(width)

    def documents(length: float) -> Any:
        begins = rng.random((texts, sentences)) < 1 / length
        return np.take_along_axis(noise(sentences), begins.cumsum(axis=1) % sentences, axis=1)

    def share(part: Any, variance: float) -> Any:
        return np.sqrt(variance) * part + np.sqrt(1 - variance) * noise(sentences)

    kinds: dict[str, Callable[[], Any]] = {"independent": lambda: noise(sentences)}
    kinds |= {f"AR(1), {phi}": partial(autoregressive, phi) for phi in (0.3, 0.5, 0.8, 0.9, 0.95)}
    kinds |= {f"moving average of {width}": partial(moving_average, width) for width in (5, 20, 50)}
    for part, phi in ((0.35, 0.95), (0.1, 0.95), (0.05, 0.98)):
        kinds[f"{part} of AR(1), {phi}"] = lambda part=part, phi=phi: share(autoregressive(phi), part)
    for part in (0.35, 0.1):
        kinds[f"{part} of documents of 25"] = lambda part=part: share(documents(25), part)
    # The autocorrelation of 32,000 sentences of PTB, the difference of modified Kneser-Ney and Witten-Bell: 0.29, 0.19,
    # 0.15, 0.04, 0.01 and 0.003 at lags 1, 5, 10, 37, 75 and 300, as of paragraphs, articles and sections.
    parts = {1.5: 0.1, 20: 0.22, 200: 0.02}
    kinds[LIKE_PTB] = lambda: (
        sum(np.sqrt(part) * documents(length) for length, part in parts.items())
        + np.sqrt(1 - sum(parts.values())) * noise(sentences)
    )
    return kinds
