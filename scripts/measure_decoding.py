"""The measurement of models word by word for ./scripts/measure, beside KenLM's Python module where it is installed."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SENTENCES = 2000
BATCH = 1000
NGRAMS = 2_317_234  # of the model


def decoding(lmtool: Callable[..., float], data: Path) -> None:
    """PTB, order 5: words a second, one state after the other and 1,000 states at once, with one thread and two; and
    those of a network, with 40 hypotheses of each state.
    """
    import lmtool.kenlm as ours
    from lmtool.runs.load import load
    from lmtool.system import parallel

    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    lmtool("convert", "run=kn5", "to=kn5.arpa", "hydra.run.dir=log")
    lmtool("train", "model=nplm", "data=ptb", "training.steps=20", "training.minutes=null", "hydra.run.dir=nplm")
    text = (data / "ptb" / "ptb.valid.txt").read_text().splitlines()
    sentences = [[*line.split(), "</s>"] for line in text if line.strip()][:SENTENCES]
    words = sum(map(len, sentences))
    calls = {"lmtool.kenlm BaseScore": lambda: _one_by_one(ours, models["lmtool.kenlm"], sentences)}
    models: dict[str, Any] = {"lmtool.kenlm": ours.Model("kn5")}
    with contextlib.suppress(ImportError):
        import kenlm

        with _silent():
            models["kenlm"] = kenlm.Model("kn5.arpa")
        calls["kenlm BaseScore"] = lambda: _one_by_one(kenlm, models["kenlm"], sentences)
    loaded, network = load("kn5"), load("nplm")
    batch = min(BATCH, len(sentences))
    steps = [[sentence[at] if at < len(sentence) else "</s>" for sentence in sentences[:batch]] for at in range(20)]
    coded = [loaded.vocabulary.encode(step) for step in steps]
    calls["batches of 1,000 states, one thread"] = lambda: _at_once(loaded, coded)
    calls["batches of 1,000 states, all threads"] = lambda: _at_once(loaded, coded)
    counts = dict.fromkeys(calls, words) | {name: batch * len(coded) for name in calls if "batches" in name}
    calls["network, 40 hypotheses of each of 25 states"] = lambda: _at_once(network, coded[:3], alike=40)
    counts["network, 40 hypotheses of each of 25 states"] = batch * 3
    for name, call in calls.items():  # until the n-grams are in a hash table, as they are after a quarter as many words
        for _ in range(0 if "network" in name else NGRAMS // 4 // counts[name] + 1):
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(6):  # in turns, so that all have the same neighbours; the first one loads code
        for name, call in calls.items():
            parallel.use(1 if "one thread" in name else None)
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    base = "kenlm BaseScore" if "kenlm" in models else "lmtool.kenlm BaseScore"
    if "kenlm" not in models:
        print("KenLM's module is not installed (pip install kenlm): its row is left out")
    rates = {name: counts[name] / statistics.median(taken[1:]) for name, taken in seconds.items()}
    for name, rate in rates.items():
        print(f"{name:<45} {rate / 1e6:8.3f} M words/s {rate / rates[base]:8.2f} x {base}")


def _one_by_one(module: Any, model: Any, sentences: list[list[str]]) -> None:
    state, after, score = module.State(), module.State(), model.BaseScore
    for sentence in sentences:
        model.BeginSentenceWrite(state)
        for word in sentence:
            score(state, word, after)
            state, after = after, state


def _at_once(model: Any, steps: list[Any], alike: int = 1) -> None:
    from lmtool import States

    count = len(steps[0]) // alike
    states = States.of([model.begin()] * count)
    for step in steps:
        few = states if alike == 1 else states[[at for at in range(count) for _ in range(alike)]]
        _, after = model.advance(few, step)
        states = after if alike == 1 else after[::alike]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing on standard error, to which KenLM writes a bar."""
    saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nothing)
