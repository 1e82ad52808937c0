"""The measurements of scores for ./scripts/measure: mixtures of every kind, the significance of differences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def mixtures(lmtool: Callable[..., float]) -> None:
    """PTB valid: order 5 mixed with Witten-Bell, caches and a hierarchical softmax of two epochs, fitted there."""
    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    lmtool("train", "model=ngram", "model.order=3", "smoother=witten_bell", "data=ptb", "hydra.run.dir=wb3")
    lmtool("train", "model=hsoftmax", "tree=huffman", "data=ptb", "training.epochs=2", "hydra.run.dir=hs")
    lmtool("eval", "run=kn5", "hydra.run.dir=kn5-valid")
    lmtool("eval", "run=hs", "accuracy=true", "hydra.run.dir=hs-valid")
    print(f"kn5 {_result('kn5-valid')['perplexity']:.4f}, hs {_result('hs-valid')['perplexity']:.2f}")
    mixtures_to_fit = {
        "kn5+wb3": ["runs=[kn5,wb3]"],
        "kn5+unigram": ["runs=[kn5]", "cache=unigram"],
        "linear": ["runs=[kn5,hs]"],
        "classes": ["runs=[kn5,hs]", "method=classes"],
        "unigram": ["runs=[kn5,hs]", "cache=unigram"],
        "neural": ["runs=[kn5,hs]", "cache=neural"],
        "log_linear": ["runs=[kn5,hs]", "method=log_linear"],
    }
    for name, words in mixtures_to_fit.items():
        seconds = lmtool("ensemble", *words, f"hydra.run.dir={name}")
        found = _result(name)
        weights = " ".join(f"{weight:.4f}" for weight in found["weights"])
        print(f"{name}: {found['perplexity']:.4f}, weights {weights}, gap {found['fit']['gap']:.1e}; {seconds:.1f} s")
    lmtool("compare", "runs=[linear,classes,log_linear]", "hydra.run.dir=table")
    print(Path("table/compare.md").read_text())
    _resampling()


def _resampling() -> None:
    import numpy as np

    from lmtool.evaluation.significance import compare
    from lmtool.evaluation.token_scores import TokenScores

    kept = [TokenScores.open(Path(name) / "scores.h5") for name in ("linear", "classes")]
    log_prob = np.stack([found.log_prob for found in kept])
    compare(log_prob, kept[0].tokens.offsets, resamples=100, seed=1)
    start = time.perf_counter()
    compare(log_prob, kept[0].tokens.offsets, resamples=10_000, seed=1)
    print(f"both tests of two models, 10,000 draws each: {time.perf_counter() - start:.2f} s")


def _result(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "result.json").read_text())
    return found
