"""Axes: formatting of numbers, scales, and the names of lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmtool.plots.style import shortened

MARGIN = 0.08  # space of an axis beyond its values, as a share of their range
SETTINGS_RATIO = 30.0  # minimum ratio of the largest setting to the smallest for a log axis
VALUE_RATIO = 3.0  # minimum ratio of measured values for a log axis: larger values would flatten the rest
MAX = 1e250  # maximum value of an axis; beyond it margins and ticks overflow
OUTLIER = 100.0  # multiple of the median; larger values are drawn at the top of the picture


def perplexity_text(value: float) -> str:
    """Return a perplexity with the digits that can be distinguished in a chart."""
    if value >= 1e6:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def top_of(values: Sequence[float]) -> float:
    """Return the upper end of an axis: the largest value that is at most OUTLIER times the median."""
    limit = OUTLIER * float(np.median(values))
    return max((value for value in values if value <= limit), default=max(values))


def number_axis(axes: Any, which: str, values: Sequence[float], *, log_ratio: float = math.inf) -> bool:
    """Scale the axis `x` or `y` for values, with a margin; return whether it is logarithmic.

    log_ratio: minimum ratio of the largest value to the smallest, above 0, for a log axis.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = max(min(values), -MAX), min(max(values), MAX)
    log = low > 0 and high > log_ratio * low
    if log:
        margin = (high / low) ** MARGIN
        low, high = low / margin, high * margin
        axes.set(**{f"{which}scale": "log"})
        steps = (1,) if high > 1000 * low else (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 7)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_minor_locator(NullLocator())
    else:
        margin = MARGIN * (high - low) or max(abs(high) * MARGIN, 1e-9)
        low, high = low - margin, high + margin
    axes.set(**{f"{which}lim": (low, high)})
    axis.set_major_formatter("{x:,.7g}")
    return log


def name_at_right(figure: Any, drawn: Sequence[Any]) -> None:
    """Write the labels of lines or bars, in their colors, at the right of a figure."""
    names = [shortened(figure, each.get_label()) for each in drawn]
    figure.legend(drawn, names, loc="outside right center", frameon=False, handlelength=1, labelcolor="linecolor")
