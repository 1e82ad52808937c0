"""Charts of results: dot plots, weights of mixtures, learning-rate range tests, a sweep's metric by its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lmtool.plots.style import (
    INK,
    LIGHT,
    MARKERS,
    MUTED,
    SERIES,
    VALUE_RATIO,
    WIDTH,
    are_geometric,
    new_figure,
    number_axis,
    perplexity_text,
    shortened,
    top_of,
    write_names,
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


def dots_figure(dots: Sequence[Dot], label: str, title: str = "", *, zero: bool = False) -> Figure:
    """Draw dots, lowest value first, with their intervals. label: label of the axis. zero: whether to mark 0."""
    ranked = sorted(dots, key=lambda dot: dot.value)
    ends = [value for dot in ranked for value in (dot.value, *(dot.interval or ()))]
    if zero:
        ends.append(0.0)
    with new_figure(WIDTH, 0.75 + 0.27 * len(ranked), [label, *(dot.name for dot in ranked)], title) as figure:
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
        write_names(figure, bars)
    return figure


def loss_against_rate(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    proposed: float,
    title: str = "",
    start: int = 0,
) -> Figure:
    """Draw losses in nats, of each step and smoothed from step `start` on, by learning rate; mark the proposed one."""
    shown = smoothed[start:]
    with new_figure(WIDTH, 3.4, [], title) as figure:
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
    return figure


SEED = "seed"  # jobs that differ only in this setting are repetitions
MAX_DOTS = 40  # maximum rows of a dot plot of a sweep; the best jobs are shown
MAX_MARKED = 30  # maximum points of a line with a marker each
WHOLE = 3.0  # range above which ticks are whole numbers
MAX_TICKS = 10  # maximum number of settings that are the ticks of their log axis
Job = tuple[dict[str, Any], float]  # varying settings, metric
Points = dict[float, list[float]]  # by x the values, several if jobs differ only in the seed


class Chart(NamedTuple):
    """How jobs of a sweep are drawn. lines: metric against x, with a line for each value of the settings `by`. grid: a
    column for each value of x, a row for each value of the one setting in `by`. dots: a row for each job.
    """

    kind: Literal["lines", "grid", "dots"]
    jobs: Sequence[Job]
    x: str = ""
    by: Sequence[str] = ()


def charts_of(jobs: Sequence[Job]) -> list[Chart]:
    """Return the charts of jobs, which have the same settings.

    x is the setting with most values that are all numbers; without one: dots. Lines, if there are few. Two settings
    with two numbers each or with three or more, or with too many lines: a grid, if half of its cells have jobs. If more
    settings vary: a grid of the two with most numbers, of the jobs with the best one's other settings, and dots.
    """
    values = {key: {settings[key] for settings, _ in jobs} for key in jobs[0][0] if key != SEED}
    varied = [key for key in values if len(values[key]) > 1]
    numeric = [key for key in varied if all(math.isfinite(decimal(str(value))) for value in values[key])]
    numeric.sort(key=lambda key: -len(values[key]))
    dots = Chart("dots", jobs)
    if not numeric:
        return [dots]
    x, by = numeric[0], [key for key in varied if key != numeric[0]]
    lines = len({tuple(settings[key] for key in by) for settings, _ in jobs})
    square = len(numeric) > 1 and (len(values[numeric[1]]) > 2 or len(values[x]) == 2)
    if len(by) == 1 and (square or lines > len(SERIES)):
        filled = len({(settings[x], settings[by[0]]) for settings, _ in jobs})
        return [Chart("grid", jobs, x, by) if 2 * filled >= len(values[x]) * len(values[by[0]]) else dots]
    if lines <= len(SERIES) and (len(values[x]) > 2 or not by):
        return [Chart("lines", jobs, x, by)]
    best = min(jobs, key=lambda job: job[1])[0]
    same = [job for job in jobs if all(job[0][key] == best[key] for key in by if key != numeric[1])] if square else []
    return [*[chart for chart in (charts_of(same) if same else []) if chart.kind == "grid"], dots]


def settings_figure(chart: Chart, metric: str, train: Sequence[Job] = (), shared: str = "") -> Figure:
    """Draw a chart of a sweep. metric: its label. train: jobs with their perplexities on train, for lines. shared: the
    settings of all jobs, for the title.
    """
    if chart.kind == "lines":
        title, drawn = f"a line for each {', '.join(chart.by)}" * bool(chart.by), [job[0] for job in chart.jobs]
        title, train = "\n".join(filter(None, [shared, title])), [job for job in train if job[0] in drawn]
        return lines_figure(_by_settings(chart, chart.jobs), metric, chart.x, title, _by_settings(chart, train))
    if chart.kind == "grid":
        return _grid(chart, metric, shared)
    ranked = sorted(chart.jobs, key=lambda job: job[1])[:MAX_DOTS]
    dots = [Dot(settings_text(settings), value, perplexity_text(value)) for settings, value in ranked]
    return dots_figure(dots, metric, shared)


def settings_text(settings: dict[str, Any]) -> str:
    """Return settings in one line, without those that are empty, as the job lacks them, and without the groups of those
    whose names differ: `order=3, smoother=mle`.
    """
    names = [key.rpartition(".")[2] for key in settings]
    shown = [name if names.count(name) == 1 else key for key, name in zip(settings, names, strict=True)]
    return ", ".join(f"{name}={value}" for name, value in zip(shown, settings.values(), strict=True) if value != "")


def _by_settings(chart: Chart, jobs: Sequence[Job]) -> dict[str, Points]:
    """Return the metrics of jobs by the values of `chart.by`, for lines `order 2` if these are numbers, then by x."""
    groups: dict[str, Points] = {}
    for settings, value in jobs:
        named = {key: str(settings[key]) for key in chart.by}
        for key in [key for key in named if chart.kind == "lines" and not math.isnan(decimal(named[key]))]:
            named[key] = f"{key.rpartition('.')[2]} {named[key]}"
        group = groups.setdefault(", ".join(filter(None, named.values())), {})
        group.setdefault(float(settings[chart.x]), []).append(value)
    return groups


def _means(points: Points) -> dict[float, float]:
    return {at: sum(points[at]) / len(points[at]) for at in sorted(points)}


def lines_figure(
    named: dict[str, Points], metric: str, x: str, title: str = "", train: dict[str, Points] | None = None
) -> Figure:
    """Draw lines through means by their names, the lowest in color with their lowest value, the others in gray; the
    lowest of all has a ring, values on train are dashed. metric, x: labels of the axes.
    """
    means = {name: _means(points) for name, points in named.items()}
    ranked = sorted(means, key=lambda name: min(means[name].values()))
    dashed = {name: _means(points) for name, points in (train or {}).items() if points}
    xs = sorted({at for points in means.values() for at in points})
    every = [value for line in (*named.values(), *(train or {}).values()) for each in line.values() for value in each]
    top = top_of(every)
    lowest, best = min((mean, at) for at, mean in means[ranked[0]].items())
    title = "\n".join(filter(None, [title, f"lowest: {perplexity_text(lowest)} (ring)"]))
    with new_figure(WIDTH, 3.4, [metric, x, *named], title) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "y", [min(value, top) for value in every], log_ratio=VALUE_RATIO)
        log = number_axis(axes, "x", xs, log_ratio=1 if are_geometric(xs) else math.inf)
        if len(xs) == 2 or (log and len(xs) <= MAX_TICKS):
            axes.set_xticks(xs)
        elif not log and (all(at == int(at) for at in xs) or xs[-1] - xs[0] > WHOLE):
            axes.locator_params(axis="x", integer=True)
        others = ranked[len(SERIES) :]
        gray: dict[str, Any] = {"color": MUTED, "linewidth": 0.8, "alpha": 0.6, "label": f"and {len(others)} others"}
        drawn = [axes.plot(*zip(*means[name].items(), strict=True), **gray)[0] for name in others]
        lines = []
        for name, color, marker in zip(ranked, SERIES, MARKERS, strict=False):
            line, low = means[name], perplexity_text(min(means[name].values()))
            look: dict[str, Any] = {"color": color, "marker": marker if len(line) <= MAX_MARKED else None}
            lines += axes.plot(*zip(*line.items(), strict=True), **look, label=f"{name}  {low}")
            for at, mean in line.items():
                if mean > top:  # the line leaves the picture
                    text = f"\N{UPWARDS ARROW} {perplexity_text(mean)}"
                    axes.annotate(text, (at, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
                if len(named[name][at]) > 1:  # the same job with several seeds
                    axes.plot([at] * len(named[name][at]), named[name][at], **look, linestyle="none", alpha=0.45)
            if name in dashed:
                axes.plot(*zip(*dashed[name].items(), strict=True), color=color, linestyle="--", linewidth=1.2)
        axes.plot(best, lowest, "o", markersize=9, markerfacecolor="none", markeredgecolor=SERIES[0])
        axes.set(xlabel=x, ylabel=f"{metric} (solid), train (dashed)" if dashed else metric)
        if len(ranked) > 1:
            write_names(figure, [*lines, *drawn[:1]], "lowest of each line:")
    return figure


def _grid(chart: Chart, metric: str, shared: str) -> Figure:
    """Draw cells with the means over seeds, the lower the more colored, on a log scale; the lowest is framed. shared:
    the settings of all jobs.
    """
    fixed = {key: value for key, value in chart.jobs[0][0].items() if key not in (chart.x, *chart.by, SEED)}
    title = "\n".join(filter(None, [shared, settings_text(fixed), f"{metric}; the lowest is framed"]))
    named = {name: _means(points) for name, points in _by_settings(chart, chart.jobs).items()}
    rows = sorted(named, key=lambda name: 0.0 if math.isnan(number := decimal(name)) else number)
    xs = sorted({at for points in named.values() for at in points})
    every = [mean for points in named.values() for mean in points.values()]
    low, top = min(every), top_of(every)
    scale = math.log if low > 0 else float
    span = scale(top) - scale(low) or 1.0
    size = max(WIDTH, 1.3 + 0.52 * len(xs)), 0.85 + max(0.3 * len(rows), 0.08 * len(chart.by[0]))
    with new_figure(*size, [chart.x, *chart.by, *rows], title) as figure:
        axes = figure.add_subplot()
        for row, name in enumerate(rows):
            for at, mean in named[name].items():
                column, best = xs.index(at), mean == low
                alpha = 0.04 + 0.46 * (scale(top) - scale(min(mean, top))) / span
                axes.barh(row, 1, 1, column - 0.5, color=SERIES[0], alpha=alpha)
                axes.text(column, row, perplexity_text(mean), ha="center", va="center", weight="bold" if best else None)
                if best:
                    axes.barh(row, 1, 1, column - 0.5, fill=False, edgecolor=INK, linewidth=1.4, clip_on=False)
        _name_rows(axes, rows)
        axes.set_xticks(range(len(xs)), [f"{at:.4g}" for at in xs])
        axes.set(xlim=(-0.5, len(xs) - 0.5), ylim=(len(rows) - 0.5, -0.5), xlabel=chart.x, ylabel=chart.by[0])
        axes.tick_params(axis="x", length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
    return figure
