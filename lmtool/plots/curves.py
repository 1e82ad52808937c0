"""Learning curves: perplexity, learning rate and accuracy over the epochs of a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.plots.charts import MAX_MARKED, WHOLE
from lmtool.plots.style import (
    MUTED,
    SERIES,
    VALUE_RATIO,
    WIDTH,
    new_figure,
    number_axis,
    perplexity_text,
)
from lmtool.system.files import read_json_lines
from lmtool.system.schemas import METRICS_LINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALID, TRAIN = SERIES[0], SERIES[1]
LOSS_RATIO = 10.0  # minimum ratio of the losses of steps for a log axis
MAX_STEPS = 2000  # maximum number of steps whose losses are drawn, evenly spread
TRAINING_REMEDY = "repeat the training in another folder"
Numbers = list[float]


@dataclass(frozen=True, slots=True)
class History:
    """A training as recorded in metrics.jsonl: at each evaluation the epoch, perplexities on train (during training),
    on valid and of its cloze questions, accuracies as shares, and learning rate. The list of a quantity that was not
    measured is empty. steps, losses: logged steps with their losses in nats. kept: valid or cloze, whose lowest
    perplexity chose the weights.
    """

    epochs: Numbers
    train: Numbers
    valid: Numbers
    train_accuracy: Numbers
    valid_accuracy: Numbers
    rates: Numbers
    cloze: Numbers = field(default_factory=list)
    steps: Numbers = field(default_factory=list)
    losses: Numbers = field(default_factory=list)
    kept: str = field(default="valid", kw_only=True)

    @property
    def best(self) -> int:
        """Index of the evaluation whose weights were kept."""
        values = self.cloze if self.kept == "cloze" and self.cloze else self.valid
        return values.index(min(values))


def read_history(metrics: Path, loss_is_log_prob: bool, kept: str | None = None) -> History:
    """Read metrics.jsonl. loss_is_log_prob: whether the training loss is -log p, which gives a perplexity on train.
    kept: as training.keep_best; None is valid.
    """
    if not metrics.exists():
        raise UserError(f"no metrics in {metrics}: only the training of a neural model writes them")
    every = read_json_lines(metrics, TRAINING_REMEDY, METRICS_LINE)
    lines = [line for line in every if "valid_perplexity" in line]
    if not lines:
        raise UserError(f"{metrics} is empty: the run ended before its first evaluation: {TRAINING_REMEDY}")

    def all_of(key: str, lines: list[dict[str, Any]] = lines) -> Numbers:
        values = [line.get(key) for line in lines]
        return [] if None in values else [float(value) for value in values if value is not None]

    logged = [line for line in every if "valid_perplexity" not in line]
    losses = all_of("train_loss") if loss_is_log_prob else []
    return History(
        all_of("epoch"),
        [math.exp(min(loss, 700)) for loss in losses],
        *map(all_of, ("valid_perplexity", "train_accuracy", "valid_accuracy", "lr", "cloze_perplexity")),
        *(all_of(key, logged) for key in ("step", "loss")),
        kept=kept or "valid",
    )


def training_curves(history: History, title: str = "") -> Figure:
    """Draw one training: perplexity on the left; cloze perplexity, accuracy and learning rate, if measured, on the
    right; below them the losses of steps, if they were logged.
    """
    percent = [[100 * value for value in each] for each in (history.train_accuracy, history.valid_accuracy)]
    panels = [("cloze perplexity", [("", history.cloze, VALID)])]
    panels += [("accuracy (%)", [("train", percent[0], TRAIN), ("valid", percent[1], VALID)])]
    panels += [("learning rate", [("", history.rates, MUTED)])]
    panels = [(label, lines) for label, lines in panels if lines[-1][1]]
    layout: Any = [["perplexity", label] for label, _ in panels] or [["perplexity"]]
    layout += [["loss"] * len(layout[0])] * bool(history.losses)
    with new_figure(WIDTH, 3.4 + 1.2 * max(0, len(layout) - 2), [], title) as figure:
        placed = figure.subplot_mosaic(layout, width_ratios=[5, 3][: len(layout[0])])
        axes, best = placed["perplexity"], history.best
        _epochs(axes, history.epochs)
        number_axis(axes, "y", [*history.valid, *history.train], log_ratio=VALUE_RATIO)
        kept = f"kept weights: {perplexity_text(history.valid[best])}"
        axes.plot(history.epochs[best], history.valid[best], "o", ms=8, mfc="none", mec=VALID, color=VALID, label=kept)
        _lines(axes, history, ("train, while training", history.train, TRAIN), ("valid", history.valid, VALID))
        axes.set_ylabel("perplexity")
        for label, lines in panels:
            _epochs(placed[label], history.epochs, named=label == panels[-1][0])
            low = [0.0] * (label == "learning rate")
            number_axis(placed[label], "y", [*low, *(value for _, values, _ in lines for value in values)])
            _lines(placed[label], history, *lines)
            placed[label].set_ylabel(label)
        if history.losses:
            every = 1 + len(history.steps) // MAX_STEPS
            steps, losses = history.steps[::every], history.losses[::every]
            number_axis(placed["loss"], "y", losses, log_ratio=LOSS_RATIO)
            placed["loss"].plot(steps, losses, color=TRAIN, linewidth=0.8)
            placed["loss"].set(xlim=(0, 1.03 * steps[-1]), xlabel="steps", ylabel="training loss (nats)")
    return figure


def _marker(history: History, marker: str) -> str | None:
    return marker if len(history.epochs) <= MAX_MARKED else None


def _epochs(axes: Any, epochs: Sequence[float], *, named: bool = True) -> None:
    axes.set_xlim(0, 1.03 * max(epochs))
    axes.locator_params(axis="x", nbins=6, integer=max(epochs) > WHOLE)
    if named:
        axes.set_xlabel("epochs")


def _lines(axes: Any, history: History, *lines: tuple[str, Numbers, str]) -> None:
    """Draw lines over the epochs, with their names; a line without values is left out."""
    for name, values, color in lines:
        if values:
            axes.plot(history.epochs, values, color=color, marker=_marker(history, "o"), label=name)
    if any(name for name, values, _ in lines if values):
        axes.legend(frameon=False, handlelength=1, labelcolor="linecolor")
