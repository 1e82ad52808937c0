"""Charts of results: dot plots, weights of mixtures, learning-rate range tests, a sweep's metric by its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmtool.plots.style import (
    INK,
    LIGHT,
    MARKERS,
    MUTED,
    SERIES,
    SETTINGS_RATIO,
    VALUE_RATIO,
    WIDTH,
    name_at_right,
    new_figure,
    number_axis,
    perplexity_text,
    set_title,
    shortened,
    top_of,
)
from lmtool.system.arrays import decimal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Dot:
    """A value with its name. text: the value as written. interval: its 95 % confidence interval, if any."""

    name: str
    value: float
    text: str
    interval: tuple[float, float] | None = None


def dots_figure(dots: Sequence[Dot], label: str, *, zero: bool = False) -> Figure:
    """Draw dots, lowest value first, with their intervals. label: label of the axis. zero: whether to mark 0."""
    ranked = sorted(dots, key=lambda dot: dot.value)
    ends = [value for dot in ranked for value in (dot.value, *(dot.interval or ()))]
    if zero:
        ends.append(0.0)
    with new_figure(WIDTH, 0.75 + 0.27 * len(ranked), [label, *(dot.name for dot in ranked)]) as figure:
        axes = figure.add_subplot()
        if not number_axis(axes, "x", ends, log_ratio=VALUE_RATIO):
            axes.locator_params(axis="x", nbins=7)
        _name_rows(axes, [dot.name for dot in ranked])
        axes.spines["left"].set_visible(False)
        if zero:
            axes.axvline(0, color=MUTED, linewidth=1)
        for row, dot in enumerate(ranked):
            if dot.interval is not None:
                axes.plot(dot.interval, [row, row], color=SERIES[0], linewidth=1.4, solid_capstyle="butt")
            axes.plot(dot.value, row, "o", color=SERIES[0], markersize=5.5)
            right = max(dot.value, dot.interval[1] if dot.interval else dot.value)
            axes.annotate(
                dot.text, (right, row), (7, 0), textcoords="offset points", va="center", annotation_clip=False
            )
        axes.set_xlabel(label)
    return figure


def _name_rows(axes: Any, names: Sequence[str]) -> None:
    """Label the rows of axes, the first at the top, without ticks and lines."""
    axes.set_yticks(range(len(names)), [shortened(axes.figure, name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


MIN_NUMBERED_WEIGHT = 0.07  # minimum weight whose part of a bar shows its number


def weight_bars(names: Sequence[str], table: Sequence[Sequence[float]]) -> Figure:
    """Draw weights `[K, M]` of M members as a bar for each of K classes of contexts, by the number of words seen."""
    with new_figure(WIDTH, 0.77 + max(0.3 * len(table), 0.18 * len(names)), names) as figure:
        axes = figure.add_subplot()
        left, bars = [0.0] * len(table), []
        for member, name in enumerate(names):
            weights = [row[member] for row in table]
            look: dict[str, Any] = {"color": SERIES[member % len(SERIES)], "edgecolor": LIGHT["page"], "label": name}
            bars.append(axes.barh(range(len(table)), weights, left=left, height=0.72, **look))
            for row, weight in enumerate(weights):
                if weight >= MIN_NUMBERED_WEIGHT:
                    at = left[row] + weight / 2
                    axes.text(at, row, f"{weight:.2f}", color=LIGHT["page"], ha="center", va="center")
                left[row] += weight
        seen = ["no word of the context seen", "1 word seen", *(f"{k} words seen" for k in range(2, len(table)))]
        _name_rows(axes, seen[: len(table)] if len(table) > 1 else [""])
        axes.set_xlim(0, max(1.0, *left))
        axes.grid(False)
        axes.set_xlabel("weight")
        name_at_right(figure, bars)
    return figure


def loss_against_rate(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    proposed: float,
    title: str | None = None,
    start: int = 0,
) -> Figure:
    """Draw losses in nats, of each step and smoothed from step `start` on, by learning rate; mark the proposed one."""
    shown = smoothed[start:]
    with new_figure(WIDTH, 3.4, [title or ""]) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "x", [*rates, proposed], log_ratio=1)
        # Scaled to show the fall of the loss, since the rise at the end is much larger.
        fall = max(max(shown[: max(1, len(shown) // 2)]) - min(shown), 0.1)
        low, high = min(shown) - fall / 2, min(min(shown) + 4 * fall, max(*losses, *shown))
        number_axis(axes, "y", [low, high])
        axes.plot(rates, losses, color=MUTED, linewidth=0.8, alpha=0.5)
        axes.plot(rates[start:], shown, color=SERIES[0])
        axes.axvline(proposed, color=SERIES[1], linestyle="--", linewidth=1.2, label=f"proposed: {proposed:.2g}")
        axes.legend(frameon=False, labelcolor="linecolor")
        axes.set(xlabel="learning rate", ylabel="training loss (nats)")
        if title is not None:
            set_title(figure, title)
    return figure


SEED = "seed"  # jobs that differ only in this setting are repetitions
MAX_DOTS = 40  # maximum rows of a dot plot of a sweep; the best jobs are shown
Job = tuple[dict[str, str], float]  # varying settings, metric


def line_settings(jobs: Sequence[Job]) -> tuple[str, list[str]] | None:
    """Return the setting whose numbers are the x-axis of a sweep's chart, and the settings that have a line for each
    value. Return None, for a dot plot, if no setting has numbers or there would be too many lines.
    """
    values = {key: {settings[key] for settings, _ in jobs} for key in jobs[0][0] if key != SEED}
    varied = [key for key in values if len(values[key]) > 1]
    numeric = [key for key in varied if all(math.isfinite(decimal(str(value))) for value in values[key])]
    if not numeric:
        return None
    x = max(numeric, key=lambda key: len(values[key]))
    by = [key for key in varied if key != x]
    lines = len({tuple(settings[key] for key in by) for settings, _ in jobs})
    return (x, by) if lines <= len(SERIES) and (len(values[x]) > 2 or not by) else None


def settings_figure(jobs: Sequence[Job], metric: str) -> Figure:
    """Draw the chart of a sweep. jobs: each with a finite metric, all with the same settings."""
    axes = line_settings(jobs)
    if axes is not None:
        return _lines(jobs, *axes, metric)
    ranked = sorted(jobs, key=lambda job: job[1])[:MAX_DOTS]
    return dots_figure(
        [Dot(settings_text(settings), value, perplexity_text(value)) for settings, value in ranked], metric
    )


def settings_text(settings: dict[str, str]) -> str:
    """Return settings in one line: `model.order=3, smoother=mle`."""
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _lines(jobs: Sequence[Job], x: str, by: Sequence[str], metric: str) -> Figure:
    groups: dict[tuple[str, ...], dict[float, list[float]]] = {}
    for settings, value in jobs:
        group = groups.setdefault(tuple(settings[key] for key in by), {})
        group.setdefault(float(settings[x]), []).append(value)
    xs = sorted({at for group in groups.values() for at in group})
    top = top_of([value for _, value in jobs])
    shown = [min(value, top) for _, value in jobs]
    with new_figure(WIDTH, 3.6, [metric, x, *by, *(name for names in groups for name in names)]) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "y", shown, log_ratio=VALUE_RATIO)
        if not number_axis(axes, "x", xs, log_ratio=SETTINGS_RATIO) and all(at == int(at) for at in xs):
            axes.locator_params(axis="x", integer=True)
        lines = []
        for (names, group), color, marker in zip(groups.items(), SERIES, MARKERS, strict=False):
            means = [(at, sum(group[at]) / len(group[at])) for at in sorted(group)]
            lines += axes.plot(*zip(*means, strict=True), color=color, marker=marker, label=", ".join(names))
            for at, mean in means:
                if mean > top:  # the line leaves the picture
                    text = f"\N{UPWARDS ARROW} {perplexity_text(mean)}"
                    axes.annotate(text, (at, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
            for at, metrics in group.items():
                if len(metrics) > 1:  # the same job with several seeds
                    axes.plot([at] * len(metrics), metrics, linestyle="none", marker=marker, color=color, alpha=0.45)
        axes.set(xlabel=x, ylabel=metric)
        if by:
            set_title(figure, f"a line for each {', '.join(by)}")
            name_at_right(figure, lines)
        lowest, at = min((sum(each) / len(each), at) for group in groups.values() for at, each in group.items())
        axes.annotate(
            perplexity_text(lowest), (at, lowest), (0, -5), textcoords="offset points", ha="center", va="top", color=INK
        )
    return figure
