"""Class-based and skipping n-grams for ./scripts/measure: PTB valid, alone and mixed with order 5."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

ORDERS = (3, 5, 9)


def classes(lmtool: Callable[..., float]) -> None:
    """A table of classes and orders; and what classes of other kinds, skipping and all together come to.

    Weights by EM on valid itself. Seconds are of the processor: for the classes and the highest order, by lmtool train.
    """
    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    print(f"kn5: {_result('kn5')['valid_perplexity']:.3f}", flush=True)
    for number in (100, 150, 200, 300, 500):
        _row(lmtool, f"c{number}", [f"model.classes={number}"])
    others = {"merged": ["model.passes=0"], "exchanged": ["model.start=most_frequent"]}
    for name, words in others.items():
        _row(lmtool, name, ["model.classes=200", *words], orders=(9,))
    _row(lmtool, "c1000", ["model.classes=1000", "model.start=most_frequent"], orders=(9,))
    for step, order in ((2, 3), (2, 4), (3, 3)):
        run, words = f"skip{step}-{order}", [f"model.step={step}", f"model.order={order}"]
        _mixed(run, lmtool, ["model=skip_ngram", *words])
    lmtool("ensemble", "runs=[kn5,c200-9,skip2-4]", "split=valid", "fit_split=valid", "hydra.run.dir=three")
    _print("kn5 + c200-9 + skip2-4", "three", None)


def _row(lmtool: Callable[..., float], name: str, words: list[str], orders: tuple[int, ...] = ORDERS) -> None:
    """Train with classes of a kind, the lower orders with those of the highest one, and mix each with kn5."""
    for order in sorted(orders, reverse=True):
        same = [f"model.file={name}-{orders[-1]}/classes.txt"] if order != orders[-1] else words
        _mixed(f"{name}-{order}", lmtool, ["model=class_ngram", *same, f"model.order={order}"])


def _mixed(run: str, lmtool: Callable[..., float], words: list[str]) -> None:
    before = _processor_seconds()
    lmtool("train", *words, "data=ptb", f"hydra.run.dir={run}")
    seconds = _processor_seconds() - before
    lmtool("ensemble", f"runs=[kn5,{run}]", "split=valid", "fit_split=valid", f"hydra.run.dir={run}-mix")
    _print(run, f"{run}-mix", seconds)


def _print(name: str, mixture: str, seconds: float | None) -> None:
    found = _result(mixture)
    alone = ", ".join(f"{member['perplexity']:.2f}" for member in found["members"][1:])
    weights = " ".join(f"{weight:.3f}" for weight in found["weights"])
    time = "" if seconds is None else f"; {seconds:.1f} s"
    print(f"{name}: alone {alone}, mixed {found['perplexity']:.3f}, weights {weights}{time}", flush=True)


def _processor_seconds() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def _result(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "result.json").read_text())
    return found
