"""Charts of results: dot plots, weights of mixtures, learning-rate range tests, a sweep's metric by its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmtool.plots.style import (
    INK,
    LIGHT,
    MARKERS,
    MUTED,
    SERIES,
    VALUE_RATIO,
    WIDTH,
    are_geometric,
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
MAX_TICKS = 10  # maximum values of a setting that are the ticks of its log axis
Job = tuple[dict[str, Any], float]  # varying settings, metric


@dataclass(frozen=True, slots=True)
class Chart:
    """How jobs of a sweep are drawn.

    kind: `lines`: metric against the setting x, with a line for each value of the settings `by`; `grid`: a column for
    each value of x and a row for each value of the one setting in `by`; `dots`: a row for each job.
    fixed: settings that are the same for all these jobs, those of the best one, and not for all jobs of the sweep.
    """

    kind: str
    jobs: Sequence[Job]
    x: str = ""
    by: Sequence[str] = ()
    fixed: dict[str, Any] = field(default_factory=dict)


def charts_of(jobs: Sequence[Job]) -> list[Chart]:
    """Return the charts that show jobs, each with a finite metric, all with the same settings.

    The x-axis is the setting with most values, all of which are numbers. If no setting has numbers: dots. If there are
    two settings, both of numbers and three values or more, or if there would be too many lines: a grid, if half of its
    cells have jobs. If there are few lines: lines. If more settings vary: a grid of the two with most numbers, where
    the others are those of the best job, and dots.
    """
    values = {key: {settings[key] for settings, _ in jobs} for key in jobs[0][0] if key != SEED}
    varied = [key for key in values if len(values[key]) > 1]
    numeric = [key for key in varied if all(math.isfinite(decimal(str(value))) for value in values[key])]
    numeric.sort(key=lambda key: -len(values[key]))
    dots = Chart("dots", jobs)
    if not numeric:
        return [dots]
    x, *others = numeric
    by = [key for key in varied if key != x]
    lines = len({tuple(settings[key] for key in by) for settings, _ in jobs})
    square = bool(others) and len(values[others[0]]) > 2
    if len(by) == 1 and (square or lines > len(SERIES)):
        filled = len({(settings[x], settings[by[0]]) for settings, _ in jobs})
        if 2 * filled >= len(values[x]) * len(values[by[0]]):
            return [Chart("grid", jobs, x, by)]
    if lines <= len(SERIES) and (len(values[x]) > 2 or not by):
        return [Chart("lines", jobs, x, by)]
    if len(by) > 1 and square:
        best = min(jobs, key=lambda job: job[1])[0]
        fixed = {key: best[key] for key in by if key != others[0]}
        same = [job for job in jobs if fixed.items() <= job[0].items()]
        if [chart.kind for chart in charts_of(same)] == ["grid"]:
            return [Chart("grid", same, x, others[:1], fixed), dots]
    return [dots]


def settings_figure(chart: Chart, metric: str, train: Sequence[Job] = ()) -> Figure:
    """Draw a chart of a sweep. metric: label. train: jobs with their perplexities on train, beside lines of others."""
    if chart.kind == "lines":
        return _lines(chart, metric, train)
    if chart.kind == "grid":
        return _grid(chart, metric)
    ranked = sorted(chart.jobs, key=lambda job: job[1])[:MAX_DOTS]
    return dots_figure(
        [Dot(settings_text(settings), value, perplexity_text(value)) for settings, value in ranked], metric
    )


def settings_text(settings: dict[str, Any]) -> str:
    """Return settings in one line: `model.order=3, smoother=mle`."""
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _grouped(jobs: Sequence[Job], keys: Sequence[str], x: str) -> dict[tuple[str, ...], dict[float, list[float]]]:
    """Return the metrics of jobs by their values of `keys`, then by the number x."""
    groups: dict[tuple[str, ...], dict[float, list[float]]] = {}
    for settings, value in jobs:
        group = groups.setdefault(tuple(str(settings[key]) for key in keys), {})
        group.setdefault(float(settings[x]), []).append(value)
    return groups


def _lines(chart: Chart, metric: str, train: Sequence[Job]) -> Figure:
    x, by, groups = chart.x, chart.by, _grouped(chart.jobs, chart.by, chart.x)
    on_train = _grouped(train, by, x)
    xs = sorted({at for group in groups.values() for at in group})
    values = [value for _, value in (*chart.jobs, *train)]
    top = top_of(values)
    with new_figure(WIDTH, 3.6, [metric, x, *by, *(name for names in groups for name in names)]) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "y", [min(value, top) for value in values], log_ratio=VALUE_RATIO)
        if number_axis(axes, "x", xs, log_ratio=1 if are_geometric(xs) else math.inf):
            if len(xs) <= MAX_TICKS:
                axes.set_xticks(xs)
        elif all(at == int(at) for at in xs):
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
            if beside := sorted((at, sum(each) / len(each)) for at, each in on_train.get(names, {}).items()):
                axes.plot(*zip(*beside, strict=True), color=color, linestyle="--", linewidth=1.2)
        axes.set(xlabel=x, ylabel=metric)
        title = [f"a line for each {', '.join(by)}"] * bool(by) + ["dashed: on train, while it was trained"] * bool(
            on_train
        )
        if title:
            set_title(figure, "; ".join(title))
        if by:
            name_at_right(figure, lines)
        lowest, at = min((sum(each) / len(each), at) for group in groups.values() for at, each in group.items())
        axes.annotate(
            perplexity_text(lowest), (at, lowest), (0, -5), textcoords="offset points", ha="center", va="top", color=INK
        )
    return figure


def _grid(chart: Chart, metric: str) -> Figure:
    """Draw cells with the means over seeds, the lower the more colored, on a log scale; the lowest is framed."""
    from matplotlib.patches import Rectangle

    x, (by,) = chart.x, chart.by
    groups = _grouped(chart.jobs, [by], x)
    xs = sorted({(float(settings[x]), str(settings[x])) for settings, _ in chart.jobs})
    rows = sorted(groups, key=lambda names: 0.0 if math.isnan(number := decimal(names[0])) else number)
    means = {(row, at): sum(each) / len(each) for row in rows for at, each in groups[row].items()}
    low, top = min(means.values()), top_of(list(means.values()))
    scale = math.log if low > 0 else float
    with new_figure(max(WIDTH, 1.5 + 0.42 * len(xs)), 1 + 0.3 * len(rows), [metric, x, by, *sum(rows, ())]) as figure:
        axes = figure.add_subplot()
        for (row, at), mean in means.items():
            place = [value for value, _ in xs].index(at), rows.index(row)
            share = (scale(top) - scale(min(mean, top))) / ((scale(top) - scale(low)) or 1)
            corner = place[0] - 0.5, place[1] - 0.5
            axes.add_patch(Rectangle(corner, 1, 1, color=SERIES[0], alpha=0.04 + 0.46 * share, linewidth=0))
            weight = "bold" if mean == low else "normal"
            axes.text(*place, perplexity_text(mean), ha="center", va="center", fontweight=weight)
            if mean == low:
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=INK, linewidth=1.4, zorder=3))
        _name_rows(axes, [row[0] for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(-0.5, len(xs) - 0.5)
        axes.set_xticks(range(len(xs)), [shortened(figure, name, 0.6) for _, name in xs])
        axes.tick_params(axis="x", length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set(xlabel=x, ylabel=by)
        set_title(figure, metric)
    return figure
