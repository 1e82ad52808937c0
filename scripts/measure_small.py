"""The measurement of quantised models for ./scripts/measure: size, perplexity, how far sums are from one, speed."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure_spark import text_words

TURNS = int(os.environ.get("TURNS", "9"))
CONTEXTS, AT_ONCE = 1024, 32  # whose distributions are summed


def small(data: Path, lmtool: Callable[..., float]) -> None:
    """Both tables; PARTS=ngrams or PARTS=weights: one of them."""
    parts = os.environ.get("PARTS", "ngrams,weights")
    if "ngrams" in parts:
        ngrams(data, lmtool)
    if "weights" in parts:
        weights(lmtool)


def ngrams(data: Path, lmtool: Callable[..., float]) -> None:
    """big20, order 5: float32 and 8 to 4 bits."""
    text = text_words("big20", data)
    lmtool("train", "model=ngram", "model.order=5", *text, "counts.keep=false", "hydra.run.dir=float32")
    for bits in range(8, 3, -1):
        lmtool("convert", "run=float32", f"quantize={bits}", f"hydra.run.dir={bits}")
    print(f"{'bits':<8} {'MB':>6} {'perplexity':>11} {'change':>8} {'mean log sum':>13} {'normalised':>11} {'time':>6}")
    first = math.nan
    for name in ("float32", *map(str, range(8, 3, -1))):
        size = Path(f"{name}/model.h5").stat().st_size / 1e6
        perplexity, log_sum, ratio = _scored(name)
        first = perplexity if name == "float32" else first
        print(
            f"{name:<8} {size:>6.1f} {perplexity:>11.4f} {perplexity / first - 1:>+8.2%} {log_sum:>+13.5f} "
            f"{perplexity * math.exp(log_sum):>11.4f} {ratio:>6.2f}",
            flush=True,
        )


def sums(lmtool: Callable[..., float]) -> None:
    """pydoc, order 5, in 8, 6 and 4 bits: what eval prints of the sums of distributions."""
    from lmtool.api.calls import evaluate

    lmtool("train", "model=ngram", "model.order=5", "hydra.run.dir=float32")
    for bits in (8, 6, 4):
        lmtool("convert", "run=float32", f"quantize={bits}", f"hydra.run.dir={bits}")
        found = evaluate(str(bits))
        print(f"{bits} bits: perplexity {found.perplexity:.2f}; {'; '.join(found.notes)}")


def _scored(name: str) -> tuple[float, float, float]:
    """Perplexity of valid; the mean over contexts of valid of the log of their distributions' sums; and the time of
    scoring valid with one thread, to that of float32, in turns of both.
    """
    import numpy as np

    from lmtool.data.corpus import Corpus
    from lmtool.evaluation.score import perplexity
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run
    from lmtool.system import parallel

    runs = [Run.open(Path(folder)) for folder in (name, "float32")]
    with Corpus.open(Path(runs[0].store)) as corpus:
        valid = corpus.split("valid")
        models: list[Any] = [load_model(run, corpus.vocabulary) for run in runs]
        log_prob = models[0].log_prob_text(valid.ids, valid.offsets)
        log_sums = []
        step = valid.tokens // CONTEXTS
        for at in range(0, CONTEXTS, AT_ONCE):
            contexts = [
                valid.contexts(i * step, i * step + 1, models[0].context_size)[0] for i in range(at, at + AT_ONCE)
            ]
            log_sums += np.logaddexp.reduce(models[0].log_dist(np.stack(contexts)), axis=1).tolist()
        parallel.use(1)
        models[1].log_prob_text(valid.ids, valid.offsets)
        ratios = []
        for _ in range(TURNS):
            seconds = []
            for model in models:
                start = time.thread_time()
                model.log_prob_text(valid.ids, valid.offsets)
                seconds.append(time.thread_time() - start)
            ratios.append(seconds[0] / seconds[1])
        parallel.use(None)
    return perplexity(log_prob), float(np.mean(log_sums)), sorted(ratios)[TURNS // 2]


def weights(lmtool: Callable[..., float]) -> None:
    """pydoc, model=nplm, an epoch: float32, float16 and int8."""
    lmtool("train", "model=nplm", "data=pydoc", "training.epochs=1", "hydra.run.dir=nplm")
    rows = ["nplm"]
    for bits in (16, 8):
        lmtool("convert", "run=nplm", f"quantize={bits}", f"hydra.run.dir=nplm{bits}")
        rows.append(f"nplm{bits}")
    for name in rows:
        lmtool("eval", f"run={name}", f"hydra.run.dir={name}-valid")
        perplexity = json.loads(Path(f"{name}-valid/result.json").read_text())["perplexity"]
        print(
            f"{name:<8} {Path(f'{name}/checkpoint.safetensors').stat().st_size / 1e6:.2f} MB, {perplexity:.4f}",
            flush=True,
        )
