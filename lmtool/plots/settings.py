"""The metric of a sweep against its settings.

The form of the chart follows from the settings that vary: a line over one that is a number, with a line for each value
of another one; a heat map for two that are names or have many values; dots for everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmtool.plots.axes import LOG_RATIO, VALUE_RATIO, label_ends, number_axis, perplexity_text, top_of
from lmtool.plots.dots import Dot, dots_figure
from lmtool.plots.style import INK, MARKERS, ON_STEPS, SERIES, STEPS, WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED = "seed"  # jobs that differ only in it are repetitions
MOST_DOTS = 40  # rows of a dot plot, the best ones
Job = tuple[dict[str, str], float]  # settings that vary, and the metric


@dataclass(frozen=True, slots=True)
class ChartForm:
    """form: `line` over the number x, one for each value of the settings `by`; `map` of x and by; `dots`."""

    form: str
    x: str = ""
    by: tuple[str, ...] = ()


def chart_form(jobs: Sequence[Job]) -> ChartForm:
    """The form of the chart for the settings of jobs."""
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
    """The chart of a sweep. jobs: each with a finite metric, all with the same settings. metric: its name."""
    chart = chart_form(jobs)
    if chart.form == "line":
        return _lines(jobs, chart, metric)
    if chart.form == "map":
        return _map(jobs, chart, metric)
    ranked = sorted(jobs, key=lambda job: job[1])[:MOST_DOTS]
    return dots_figure(
        [Dot(settings_text(settings), value, perplexity_text(value)) for settings, value in ranked], metric
    )


def settings_text(settings: dict[str, str]) -> str:
    """Settings in one line: `model.order=3, smoother=mle`."""
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def is_number(text: str) -> bool:
    """Whether a setting's value is a finite number."""
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
    with new_figure(WIDTH, 3.6) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "x", xs, log=xs[0] > 0 and xs[-1] > LOG_RATIO * xs[0])
        number_axis(axes, "y", shown, log=min(shown) > 0 and max(shown) > VALUE_RATIO * min(shown))
        if axes.get_xscale() == "linear" and all(x == int(x) for x in xs):
            axes.locator_params(axis="x", integer=True)
        ends = []
        for (names, group), colour, marker in zip(groups.items(), SERIES, MARKERS, strict=False):
            means = [(x, sum(group[x]) / len(group[x])) for x in sorted(group)]
            axes.plot(*zip(*means, strict=True), color=colour, marker=marker)
            for x, mean in means:
                if mean > top:  # the line leaves the picture
                    text = f"\N{UPWARDS ARROW} {perplexity_text(mean)}"
                    axes.annotate(text, (x, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
            for x, metrics in group.items():
                if len(metrics) > 1:  # the same job with several seeds
                    axes.plot([x] * len(metrics), metrics, linestyle="none", marker=marker, color=colour, alpha=0.45)
            ends.append((min(means[-1][1], top), ", ".join(names), colour))
        axes.set(xlabel=chart.x, ylabel=metric)
        if chart.by:
            axes.set_title(f"a line for each {', '.join(chart.by)}", loc="left")
            label_ends(axes, ends)
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
    with new_figure(min(WIDTH, 2.6 + 1.1 * len(columns)), 1.1 + 0.36 * len(rows)) as figure:
        axes = figure.add_subplot()
        for (row, column), value in means.items():
            step = int(np.searchsorted(edges, scale(value), side="right")) if high > low else 0
            axes.barh(row, 0.96, left=column - 0.48, height=0.92, color=STEPS[step])
            weight = "bold" if value == low else "normal"
            axes.text(
                column, row, perplexity_text(value), ha="center", va="center", color=ON_STEPS[step], weight=weight
            )
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), xlabel=chart.x, ylabel=down)
        axes.set_title(metric, loc="left")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(False)
    return figure
