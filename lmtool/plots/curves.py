"""Learning curves: perplexity, learning rate and accuracy over the epochs of a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.plots.style import (
    MARKERS,
    MUTED,
    SERIES,
    VALUE_RATIO,
    WIDTH,
    name_at_right,
    new_figure,
    number_axis,
    perplexity_text,
    set_title,
    top_of,
)
from lmtool.system.files import read_json_lines
from lmtool.system.schemas import METRICS_LINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALID, TRAIN = SERIES[0], SERIES[1]
MAX_MARKED = 30  # maximum number of evaluations with a marker each
TRAINING_REMEDY = "repeat the training in another folder"
Numbers = list[float]


@dataclass(frozen=True, slots=True)
class History:
    """A training as recorded in metrics.jsonl: at each evaluation the epoch, perplexities on train (during training)
    and valid, accuracies as shares, and learning rate. The list of a quantity that was not measured is empty.
    """

    epochs: Numbers
    train: Numbers
    valid: Numbers
    train_accuracy: Numbers
    valid_accuracy: Numbers
    rates: Numbers

    @property
    def best(self) -> int:
        """Index of the lowest valid perplexity, whose weights were saved."""
        return self.valid.index(min(self.valid))


def read_history(metrics: Path, loss_is_log_prob: bool) -> History:
    """Read metrics.jsonl. loss_is_log_prob: whether the training loss is -log p, which gives a perplexity on train."""
    if not metrics.exists():
        raise UserError(f"no metrics in {metrics}: only the training of a neural model writes them")
    every = read_json_lines(metrics, TRAINING_REMEDY, METRICS_LINE)
    lines = [line for line in every if "valid_perplexity" in line]
    if not lines:
        raise UserError(f"{metrics} is empty: the run ended before its first evaluation: {TRAINING_REMEDY}")

    def all_of(key: str) -> Numbers:
        values = [line.get(key) for line in lines]
        return [] if None in values else [float(value) for value in values if value is not None]

    losses = all_of("train_loss") if loss_is_log_prob else []
    return History(
        all_of("epoch"),
        [math.exp(min(loss, 700)) for loss in losses],
        all_of("valid_perplexity"),
        all_of("train_accuracy"),
        all_of("valid_accuracy"),
        all_of("lr"),
    )


def training_curves(history: History, title: str | None = None) -> Figure:
    """Draw one training: perplexity on the left, accuracy and learning rate, if measured, on the right."""
    beside = bool(history.valid_accuracy) + bool(history.rates)
    with new_figure(WIDTH, 3.4, [title or ""]) as figure:
        grid = figure.add_gridspec(max(beside, 1), 2 if beside else 1, width_ratios=[5, 3] if beside else None)
        axes = figure.add_subplot(grid[:, 0])
        _epochs(axes, history.epochs)
        number_axis(axes, "y", [*history.valid, *history.train], log_ratio=VALUE_RATIO)
        _lines(axes, history, ("train", history.train, TRAIN), ("valid", history.valid, VALID))
        best = history.best
        axes.plot(history.epochs[best], history.valid[best], "o", ms=8, mfc="none", mec=VALID)
        axes.set_ylabel("perplexity")
        set_title(figure, title or f"lowest on valid: {perplexity_text(history.valid[best])}")
        if history.valid_accuracy:
            axes = figure.add_subplot(grid[0, 1])
            _epochs(axes, history.epochs, named=not history.rates)
            shown = [("train", history.train_accuracy, TRAIN), ("valid", history.valid_accuracy, VALID)]
            percent = [(name, [100 * value for value in values], color) for name, values, color in shown]
            number_axis(axes, "y", [value for _, values, _ in percent for value in values])
            _lines(axes, history, *percent)
            axes.set_ylabel("accuracy (%)")
        if history.rates:
            axes = figure.add_subplot(grid[-1, 1])
            _epochs(axes, history.epochs)
            number_axis(axes, "y", [0, *history.rates])
            axes.plot(history.epochs, history.rates, color=MUTED, marker=_marker(history, "o"))
            axes.set_ylabel("learning rate")
    return figure


def valid_curves(named: Sequence[tuple[str, History]]) -> Figure:
    """Draw valid perplexities of several trainings over epochs: the best in color, with names; the others in gray."""
    ranked = sorted(named, key=lambda each: min(each[1].valid))
    values = [value for _, history in named for value in history.valid]
    top = top_of(values)
    with new_figure(WIDTH, 3.8, [name for name, _ in named]) as figure:
        axes = figure.add_subplot()
        _epochs(axes, [epoch for _, history in named for epoch in history.epochs])
        number_axis(axes, "y", [value for value in values if value <= top], log_ratio=VALUE_RATIO)
        for _, history in ranked[len(SERIES) :]:
            axes.plot(history.epochs, history.valid, color=MUTED, linewidth=0.8, alpha=0.6)
        lines = []
        for (name, history), color, marker in zip(ranked, SERIES, MARKERS, strict=False):
            label = f"{name}  {perplexity_text(min(history.valid))}"
            look: dict[str, Any] = {"color": color, "marker": _marker(history, marker), "label": label}
            lines += axes.plot(history.epochs, history.valid, **look)
        axes.set_ylabel("perplexity on valid")
        name_at_right(figure, lines)
    return figure


def _marker(history: History, marker: str) -> str | None:
    return marker if len(history.epochs) <= MAX_MARKED else None


def _epochs(axes: Any, epochs: Sequence[float], *, named: bool = True) -> None:
    axes.set_xlim(0, 1.03 * max(epochs))
    axes.locator_params(axis="x", nbins=6)
    if named:
        axes.set_xlabel("epochs")


def _lines(axes: Any, history: History, *lines: tuple[str, Numbers, str]) -> None:
    """Draw lines over the epochs, with their names; a line without values is left out."""
    for name, values, color in lines:
        if values:
            axes.plot(history.epochs, values, color=color, marker=_marker(history, "o"), label=name)
    axes.legend(frameon=False, handlelength=1, labelcolor="linecolor")
