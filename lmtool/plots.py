"""Pictures of a run, for those who have matplotlib (the extra `plots`)."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

from lmtool.errors import UserError
from lmtool.files import written_whole

TRAIN, VALID = "#b5651d", "#1f5fa8"


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def training_curves(metrics: Path, picture: Path, title: str) -> None:
    """Draw perplexity over epochs, on train and valid, from metrics.jsonl into a PNG.

    Raises UserError where there are no metrics to draw.
    """
    if not metrics.is_file():
        raise UserError(f"no metrics in {metrics}: only a neural model's training writes them")
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    if not lines:
        raise UserError(f"{metrics} is empty: the run ended before its first evaluation")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    epochs = [line["epoch"] for line in lines]
    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    trained = [(line["epoch"], math.exp(min(line["train_loss"], 700))) for line in lines]
    style: dict[str, Any] = {"marker": "o", "markersize": 4}
    axes.plot(*zip(*trained, strict=True), color=TRAIN, label="train (while learning)", **style)
    valid = [line["valid_perplexity"] for line in lines]
    axes.plot(epochs, valid, color=VALID, label="valid", **style)
    best = valid.index(min(valid))
    axes.annotate(
        f"{valid[best]:.1f}, kept",
        (epochs[best], valid[best]),
        (-4, 8),
        textcoords="offset points",
        color=VALID,
        ha="right",
    )
    axes.set(title=title, xlabel="epoch", ylabel="perplexity", yscale="log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter() if max(valid) < 10 * min(valid) else NullFormatter())
    axes.grid(True, which="both", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with written_whole(picture) as temporary:
        figure.savefig(temporary, format="png")


def loss_against_rate(
    rates: list[float], losses: list[float], smoothed: list[float], proposed: float, picture: Path, title: str
) -> None:
    """Draw the losses of a learning-rate range test into a PNG, with the rate that is proposed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(rates, losses, color="#cccccc", linewidth=0.8, label="each step")
    axes.plot(rates, smoothed, color=VALID, label="smoothed")
    axes.axvline(proposed, color=TRAIN, linestyle="--", label=f"proposed: {proposed:.2g}")
    axes.set(title=title, xlabel="learning rate", ylabel="loss (nats)", xscale="log")
    # What was gained is to be seen, beside the rise at the end.
    gained = max(max(smoothed[: len(smoothed) // 2]) - min(smoothed), 0.1)
    axes.set_ylim(min(smoothed) - gained, min(smoothed) + 4 * gained)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with written_whole(picture) as temporary:
        figure.savefig(temporary, format="png")
