"""Quantized models for ./scripts/measure: size, perplexity, how far sums are from one, speed."""

from __future__ import annotations

import math
import os
import statistics
import time
from pathlib import Path

from measuring import big20, evaluate, in_turns, lmtool, measure, train, turns

CONTEXTS, CHUNK = 1024, 32  # number of contexts whose distributions are summed, and how many at once


@measure
def small() -> None:
    """big20, order 5, in 8 to 4 bits: size, perplexity, speed; pydoc: weights of model=nplm in 16 and 8 bits

    PARTS=ngrams or PARTS=weights: one of them.
    """
    parts = os.environ.get("PARTS", "ngrams,weights")
    if "ngrams" in parts:
        _ngrams()
    if "weights" in parts:
        _weights()


def _ngrams() -> None:
    train("float32", "model=ngram", "model.order=5", *big20(), "counts.keep=false")
    for bits in range(8, 3, -1):
        lmtool("convert", "run=float32", f"quantize={bits}", f"hydra.run.dir={bits}")
    print(f"{'bits':<8} {'MB':>6} {'perplexity':>11} {'change':>8} {'mean log sum':>13} {'normalised':>11} {'time':>6}")
    first = math.nan
    for name in ("float32", *map(str, range(8, 3, -1))):
        size = Path(f"{name}/model.h5").stat().st_size / 1e6
        perplexity, log_sum, ratio = _scored(name)
        first = perplexity if name == "float32" else first
        change, renormalized = perplexity / first - 1, perplexity * math.exp(log_sum)
        print(f"{name:<8} {size:>6.1f} {perplexity:>11.4f} {change:>+8.2%} {log_sum:>+13.5f}", end=" ")
        print(f"{renormalized:>11.4f} {ratio:>6.2f}", flush=True)


def _scored(name: str) -> tuple[float, float, float]:
    """Return the perplexity of valid, the mean over contexts of the log of the distribution's sum, and the time of
    scoring valid with one thread divided by that of float32, in turns.
    """
    import numpy as np

    from lmtool.data.corpus import Corpus
    from lmtool.evaluation.metrics import perplexity
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run
    from lmtool.system import parallel

    runs = [Run.open(Path(folder)) for folder in (name, "float32")]
    with Corpus.open(Path(runs[0].store)) as corpus:
        valid = corpus.split("valid")
        model, plain = (load_model(run, corpus.vocabulary) for run in runs)
        log_prob = model.log_prob_text(valid.ids, valid.offsets)
        log_sums = []
        step = valid.tokens // CONTEXTS
        for at in range(0, CONTEXTS, CHUNK):
            places = [i * step for i in range(at, at + CHUNK)]
            contexts = [valid.contexts(place, place + 1, model.context_size)[0] for place in places]
            log_sums += np.logaddexp.reduce(model.log_dist(np.stack(contexts)), axis=1).tolist()
        parallel.use(1)
        calls = {
            "this": lambda: model.log_prob_text(valid.ids, valid.offsets),
            "plain": lambda: plain.log_prob_text(valid.ids, valid.offsets),
        }
        seconds = in_turns(calls, turns(9), clock=time.thread_time)
        parallel.use(None)
    ratio = statistics.median(a / b for a, b in zip(*seconds.values(), strict=True))
    return perplexity(log_prob), float(np.mean(log_sums)), ratio


def _weights() -> None:
    train("nplm", "model=nplm", "data=pydoc", "training.epochs=1")
    for bits in (16, 8):
        lmtool("convert", "run=nplm", f"quantize={bits}", f"hydra.run.dir=nplm{bits}")
    for name in ("nplm", "nplm16", "nplm8"):
        perplexity, size = evaluate(name)["perplexity"], Path(f"{name}/checkpoint.safetensors").stat().st_size
        print(f"{name:<8} {size / 1e6:.2f} MB, {perplexity:.4f}", flush=True)


@measure
def sums() -> None:
    """pydoc, order 5, in 8, 6 and 4 bits: what distributions sum to"""
    from lmtool.api.calls import evaluate

    train("float32", "model=ngram", "model.order=5")
    for bits in (8, 6, 4):
        lmtool("convert", "run=float32", f"quantize={bits}", f"hydra.run.dir={bits}")
        found = evaluate(str(bits))
        print(f"{bits} bits: perplexity {found.perplexity:.2f}; {'; '.join(found.notes)}")
