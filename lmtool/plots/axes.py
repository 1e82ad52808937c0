"""Axes: the positions and texts of ticks, and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmtool.system.arrays import FloatArray

MARGIN = 0.08  # space of an axis beyond its values, as a share of their range
LINE_HEIGHT = 11.0  # points
MINUS = "\N{MINUS SIGN}"
LOG_RATIO = 30.0  # minimum ratio of the largest setting to the smallest for a log axis
VALUE_RATIO = 3.0  # minimum ratio of measured values for a log axis: larger values would flatten the rest
MIN_LOG_RATIO = 1.5  # minimum ratio for any log axis; below it, its ticks look linear
OUTLIER = 100.0  # times the median; larger values are drawn at the top of the picture


def short(value: float) -> str:
    """Return a number as on an axis: 0.0001, 0.25, 3, 1,500, 2e-07."""
    if value < 0:
        return f"{MINUS}{short(-value)}"
    if value and not 1e-5 <= value < 1e9:
        return f"{value:.3g}"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if value else "0"


def perplexity_text(value: float) -> str:
    """Return a perplexity with the digits that can be distinguished in a chart."""
    if value >= 1e6:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def top_of(values: Sequence[float]) -> float:
    """Return where an axis ends: the largest value that is at most OUTLIER times the median."""
    limit = OUTLIER * float(np.median(values))
    return max((value for value in values if value <= limit), default=max(values))


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a log axis from low to high, both above 0: powers of ten, or other round numbers if these are
    fewer than three; none if there are still fewer.
    """
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(k / 10 for k in range(10, 100))):
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
        ticks = [value for value in ticks if low * 0.999 <= value <= high * 1.001]
        if len(ticks) >= 3:
            every = -(-len(ticks) // 8)
            return ticks[::every]
    return []


def number_axis(axes: Any, which: str, values: Sequence[float], *, log: bool) -> None:
    """Scale the axis `x` or `y` for values, with a margin. log: logarithmic, if the values differ enough."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = min(values), max(values)
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    if log and low > 0 and high > MIN_LOG_RATIO * low:
        margin = (high / low) ** MARGIN
        ticks = log_ticks(low / margin, high * margin)
        if ticks:
            (axes.set_xscale if which == "x" else axes.set_yscale)("log")
            limits(low / margin, high * margin)
            axis.set_ticks(ticks, [short(value) for value in ticks])
            axis.set_ticks([], minor=True)
            return
    margin = MARGIN * (high - low) or max(abs(high) * MARGIN, 1e-9)
    limits(low - margin, high + margin)
    axis.set_major_formatter(lambda value, _: short(value))


def spread(wanted: Sequence[float], gap: float) -> FloatArray:
    """Return positions `[n]` at least `gap` apart, in the order of the wanted ones `[n]` and as close as possible.

    Positions that are too close to each other are spaced evenly about their mean.
    """
    order = np.argsort(wanted, kind="stable")
    groups: list[list[float]] = []  # mean wanted, members
    for value in np.asarray(wanted, dtype=np.float64)[order].tolist():
        groups.append([value, 1])
        while len(groups) > 1:
            (left, many), (right, more) = groups[-2:]
            if right - left >= gap * (many + more) / 2:
                break
            groups[-2:] = [[(left * many + right * more) / (many + more), many + more]]
    positions = np.empty(len(order))
    positions[order] = np.concatenate([[], *(mean + gap * (np.arange(int(n)) - (n - 1) / 2) for mean, n in groups)])
    return positions


def within(positions: FloatArray, gap: float, low: float, high: float) -> FloatArray:
    """Move positions `[n]`, at least `gap` apart, into low to high by as little as possible; n gaps must fit."""
    ranks = np.argsort(np.argsort(positions, kind="stable"), kind="stable")
    raised = np.maximum(positions, low + gap * ranks)
    lowered: FloatArray = np.minimum(raised, high - gap * (len(positions) - 1 - ranks))
    return lowered


def label_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Label lines at the right of the axes, given as (y of the line's end, text, color).

    Labels that would overlap or leave the axes are moved up and down. The limits and names of the
    axes must be set before.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # the layout is known after it
    points = figure.dpi / 72
    box = axes.get_window_extent()
    heights = [axes.transData.transform((0, y))[1] / points for y, _, _ in ends]
    placed = within(
        spread(heights, LINE_HEIGHT), LINE_HEIGHT, box.y0 / points + LINE_HEIGHT / 2, box.y1 / points - LINE_HEIGHT / 2
    )
    for (y, text, color), height, at in zip(ends, heights, placed.tolist(), strict=True):
        anchor = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(text, (1, y), (5, at - height), color=color, va="center", **anchor)
