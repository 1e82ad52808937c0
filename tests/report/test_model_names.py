"""Reports, cards and pictures name the options that were chosen, not the settings classes behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmtool.plots import can_plot
from lmtool.report.reading import model_name
from lmtool.runs.run import Run

SMALL = ["data=toy", "output=softmax", "model.embedding_dim=4", "model.hidden_dim=6", "training.steps=2"]


def made(config: dict[str, Any], choices: dict[str, str]) -> Run:
    words = {"store": "", "store_fingerprint": "", "vocabulary_fingerprint": ""}
    return Run(folder=Path("run"), kind="train", config=config, choices=choices, **words)


NAMES = [
    ({"model": {"kind": "lstm", "cell": "gru"}, "output": {"kind": "softmax"}}, {"model": "gru"}, "gru + softmax"),
    ({"model": {"kind": "lstm", "cell": "rnn"}, "output": {"kind": "softmax"}}, {"model": "rnn"}, "rnn + softmax"),
    ({"model": {"kind": "lstm", "cell": "gru"}, "output": {"kind": "softmax"}}, {"model": "lstm"}, "gru + softmax"),
    ({"model": {"kind": "lstm", "cell": "gru"}, "output": {"kind": "softmax"}}, {}, "gru + softmax"),
    ({"model": {"kind": "lstm", "cell": "lstm"}, "output": {"kind": "nce"}}, {"model": "lstm"}, "lstm + nce"),
    ({"model": {"kind": "nplm"}, "output": {"kind": "nce"}}, {"model": "nce", "output": "nce"}, "nce"),
    ({"model": {"kind": "nplm"}, "output": {"kind": "softmax"}}, {"model": "skip_layer"}, "skip_layer + softmax"),
    (
        {"model": {"kind": "nplm"}, "output": {"kind": "hierarchical"}, "tree": {"kind": "clusters"}},
        {"model": "hsoftmax", "output": "mine", "tree": "wide"},
        "hsoftmax + mine (wide)",
    ),
    ({"model": {"kind": "ngram", "order": 3}, "smoother": {"kind": "laplace"}}, {}, "laplace of order 3"),
    (
        {"model": {"kind": "ngram", "order": 3}, "smoother": {"kind": "laplace"}},
        {"model": "ngram", "smoother": "add_one"},
        "add_one of order 3",
    ),
    (
        {"model": {"kind": "class_ngram", "order": 3, "num_classes": 200}, "smoother": {"kind": "laplace"}},
        {"model": "class_ngram", "smoother": "laplace"},
        "class_ngram, laplace of order 3",
    ),
]


@pytest.mark.parametrize(("config", "choices", "name"), NAMES)
def test_by_hand(config: dict[str, Any], choices: dict[str, str], name: str) -> None:
    assert model_name(made(config, choices)) == name


def test_the_report_and_the_pictures_of_a_gru(
    lmtool: Callable[..., str], with_curves: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    if can_plot():
        import lmtool.plots.curves as curves

        drawn = curves.training_curves
        monkeypatch.setattr(curves, "training_curves", lambda h, title="": titles.append(title) or drawn(h, title))
    lmtool("train", "model=gru", *SMALL, "hydra.run.dir=runs/gru")
    lmtool("train", "model=lstm", *SMALL, "hydra.run.dir=runs/lstm")
    lmtool("report", "runs/gru", "runs/lstm", "hydra.run.dir=page", "map=none")
    page = Path("page/report.html").read_text(encoding="utf-8").replace("<wbr>", "")
    assert "gru + softmax" in page and "lstm + softmax" in page
    assert model_name(Run.open(Path("runs/gru"))) == "gru + softmax"
    if can_plot():
        assert titles[:2] == ["gru + softmax, data=toy", "lstm + softmax, data=toy"]
