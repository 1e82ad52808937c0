"""Charts of results: dot plots, weights of mixtures, learning-rate range tests, a sweep's metric by its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmtool.plots.axes import (
    SETTINGS_RATIO,
    VALUE_RATIO,
    clipped,
    name_at_right,
    number_axis,
    perplexity_text,
    top_of,
)
from lmtool.plots.style import INK, LIGHT, MARKERS, MUTED, ON_STEPS, SERIES, STEPS, WIDTH, new_figure, set_title

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
    """Draw dots, lowest value first, with their intervals. label: of the axis. zero: whether to mark 0."""
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
    """Name the rows of axes, the first at the top, without ticks and lines."""
    axes.set_yticks(range(len(names)), [clipped(axes.figure, name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


MIN_NUMBERED_WEIGHT = 0.07  # minimum weight whose part of a bar shows its number


def weight_bars(names: Sequence[str], table: Sequence[Sequence[float]]) -> Figure:
    """Draw the weights `[K, M]` of M members as a bar for each of K classes of contexts, by the number of words seen;
    K is 1 if the weights do not depend on the context.
    """
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
        # Scaled for the fall of the loss, which the rise at the end would dwarf.
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
MAX_DOTS = 40  # rows of a dot plot of a sweep, the best ones
Job = tuple[dict[str, str], float]  # varying settings, metric


@dataclass(frozen=True, slots=True)
class ChartForm:
    """The form of a sweep's chart, which follows from the settings that vary.

    form: `line` over a number x, with a line for each value of the settings `by`; `map`, a heat map of x and by, which
    are names or have many values; `dots` for everything else.
    """

    form: str
    x: str = ""
    by: tuple[str, ...] = ()


def chart_form(jobs: Sequence[Job]) -> ChartForm:
    """Choose the form of the chart for the settings of jobs."""
    keys = [key for key in jobs[0][0] if key != SEED]
    values = {key: {settings[key] for settings, _ in jobs} for key in keys}
    keys = [key for key in keys if len(values[key]) > 1]
    numeric = sorted((key for key in keys if all(map(is_number, values[key]))), key=lambda key: -len(values[key]))
    if numeric:
        x, by = numeric[0], tuple(key for key in keys if key != numeric[0])
        lines = len({tuple(settings[key] for key in by) for settings, _ in jobs})
        if lines <= len(SERIES) and (len(values[x]) > 2 or not by):
            return ChartForm("line", x, by)
    if len(keys) == 2:
        across, down = sorted(keys, key=lambda key: len(values[key]))
        return ChartForm("map", across, (down,))
    return ChartForm("dots")


def settings_figure(jobs: Sequence[Job], metric: str) -> Figure:
    """Draw the chart of a sweep. jobs: each with a finite metric, all with the same settings. metric: its name."""
    chart = chart_form(jobs)
    if chart.form == "line":
        return _lines(jobs, chart, metric)
    if chart.form == "map":
        return _map(jobs, chart, metric)
    ranked = sorted(jobs, key=lambda job: job[1])[:MAX_DOTS]
    return dots_figure(
        [Dot(settings_text(settings), value, perplexity_text(value)) for settings, value in ranked], metric
    )


def settings_text(settings: dict[str, str]) -> str:
    """Return settings in one line: `model.order=3, smoother=mle`."""
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def is_number(text: str) -> bool:
    """Return whether a setting's value is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _lines(jobs: Sequence[Job], chart: ChartForm, metric: str) -> Figure:
    groups: dict[tuple[str, ...], dict[float, list[float]]] = {}
    for settings, value in jobs:
        group = groups.setdefault(tuple(settings[key] for key in chart.by), {})
        group.setdefault(float(settings[chart.x]), []).append(value)
    xs = sorted({x for group in groups.values() for x in group})
    top = top_of([value for _, value in jobs])
    shown = [min(value, top) for _, value in jobs]
    with new_figure(WIDTH, 3.6, [metric, chart.x, *chart.by, *(name for names in groups for name in names)]) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "y", shown, log_ratio=VALUE_RATIO)
        if not number_axis(axes, "x", xs, log_ratio=SETTINGS_RATIO) and all(x == int(x) for x in xs):
            axes.locator_params(axis="x", integer=True)
        lines = []
        for (names, group), color, marker in zip(groups.items(), SERIES, MARKERS, strict=False):
            means = [(x, sum(group[x]) / len(group[x])) for x in sorted(group)]
            lines += axes.plot(*zip(*means, strict=True), color=color, marker=marker, label=", ".join(names))
            for x, mean in means:
                if mean > top:  # the line leaves the picture
                    text = f"\N{UPWARDS ARROW} {perplexity_text(mean)}"
                    axes.annotate(text, (x, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
            for x, metrics in group.items():
                if len(metrics) > 1:  # the same job with several seeds
                    axes.plot([x] * len(metrics), metrics, linestyle="none", marker=marker, color=color, alpha=0.45)
        axes.set(xlabel=chart.x, ylabel=metric)
        if chart.by:
            set_title(figure, f"a line for each {', '.join(chart.by)}")
            name_at_right(figure, lines)
        lowest, at = min((sum(each) / len(each), x) for group in groups.values() for x, each in group.items())
        axes.annotate(
            perplexity_text(lowest), (at, lowest), (0, -5), textcoords="offset points", ha="center", va="top", color=INK
        )
    return figure


def _in_order(values: set[str]) -> list[str]:
    return sorted(values, key=float) if all(map(is_number, values)) else sorted(values)


def _map(jobs: Sequence[Job], chart: ChartForm, metric: str) -> Figure:
    (down,) = chart.by
    columns = _in_order({settings[chart.x] for settings, _ in jobs})
    rows = _in_order({settings[down] for settings, _ in jobs})
    cells: dict[tuple[int, int], list[float]] = {}
    for settings, value in jobs:
        cells.setdefault((rows.index(settings[down]), columns.index(settings[chart.x])), []).append(value)
    means = {place: sum(values) / len(values) for place, values in cells.items()}
    low, high = min(means.values()), max(means.values())
    scale = np.log if low > 0 and high > VALUE_RATIO * low else np.asarray
    edges = np.linspace(scale(low), scale(high), len(STEPS) + 1)[1:-1]
    size = min(WIDTH, 2.6 + 1.1 * len(columns)), 1.1 + 0.36 * len(rows)
    with new_figure(*size, [metric, chart.x, down, *columns, *rows]) as figure:
        axes = figure.add_subplot()
        for (row, column), value in means.items():
            step = int(np.searchsorted(edges, scale(value), side="right")) if high > low else 0
            axes.barh(row, 0.96, left=column - 0.48, height=0.92, color=STEPS[step])
            weight = "bold" if value == low else "normal"
            axes.text(
                column, row, perplexity_text(value), ha="center", va="center", color=ON_STEPS[step], weight=weight
            )
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), [clipped(figure, row) for row in rows])
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), xlabel=chart.x, ylabel=down)
        set_title(figure, metric)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(False)
    return figure
