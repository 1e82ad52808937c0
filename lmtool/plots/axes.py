"""Axes: the positions and texts of ticks, and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmtool.plots.style import shorten
from lmtool.system.arrays import FloatArray

MAX_NAME = 3.0  # inches: width of a name beside an axis or a line
MARGIN = 0.08  # space of an axis beyond its values, as a share of their range
LINE_HEIGHT = 11.0  # points
MINUS = "\N{MINUS SIGN}"
LOG_RATIO = 30.0  # minimum ratio of the largest setting to the smallest for a log axis
VALUE_RATIO = 3.0  # minimum ratio of measured values for a log axis: larger values would flatten the rest
MAX = 1e250  # of an axis; beyond it margins and ticks overflow
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


def clipped(figure: Any, name: str) -> str:
    """Return a name for a figure, without the beginning of a long one: its end says more."""
    text = figure.text(0, 0, name)
    shown = shorten(text, MAX_NAME * figure.dpi, from_start=True)
    text.remove()
    return shown


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
    low, high = max(min(values), -MAX), min(max(values), MAX)
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


def label_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> FloatArray:
    """Return positions `[n]` from low to high, at least `gap` apart, ordered as the wanted ones `[n]` and near them.

    Positions that are too close to each other give way in both directions; n gaps must fit.
    """
    order, steps = np.argsort(wanted, kind="stable"), gap * np.arange(len(wanted))
    free = np.asarray(wanted, dtype=np.float64)[order] - steps  # positions are a gap apart where these ascend
    middle = (np.maximum.accumulate(free) + np.minimum.accumulate(free[::-1])[::-1]) / 2
    positions = np.empty(len(order))
    positions[order] = np.clip(middle, low, high - gap * (len(order) - 1)) + steps
    return positions


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
    low, high = box.y0 / points + LINE_HEIGHT / 2, box.y1 / points - LINE_HEIGHT / 2
    placed = label_positions(heights, LINE_HEIGHT, low, high)
    for (y, text, color), height, at in zip(ends, heights, placed.tolist(), strict=True):
        anchor = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(clipped(figure, text), (1, y), (5, at - height), color=color, va="center", **anchor)
