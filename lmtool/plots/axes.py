"""Numbers along an axis: where its marks stand, how they are written, and labels that keep clear of each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmtool.language_model import FloatArray

MINUS = "\N{MINUS SIGN}"
DECADES = 30.0  # an axis whose values span as much has logarithmic marks


def short(value: float) -> str:
    """A number on an axis: 0.0001, 0.25, 3, 1,500, 2e-07."""
    if value < 0:
        return f"{MINUS}{short(-value)}"
    if value and not 1e-5 <= value < 1e9:
        return f"{value:.3g}"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if value else "0"


def perplexity_text(value: float) -> str:
    """A perplexity beside its mark: as many digits as a chart can show."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two above 0, for a logarithmic axis: powers of ten, or as many more as give at least three;
    none where there are no three.
    """
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(k / 10 for k in range(10, 100))):
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [step * 10.0**exponent for exponent in exponents for step in steps]
        found = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(found) >= 3:
            every = -(-len(found) // 8)
            return found[::every]
    return []


def number_axis(axes: Any, which: str, values: Sequence[float], *, log: bool) -> None:
    """Scale the axis `x` or `y` for values, with a margin: logarithmic where asked for and possible, else linear."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = min(values), max(values)
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    if log and low > 0 and high > low:
        margin = (high / low) ** 0.06
        ticks = log_ticks(low / margin, high * margin)
        if ticks:
            (axes.set_xscale if which == "x" else axes.set_yscale)("log")
            limits(low / margin, high * margin)
            axis.set_ticks(ticks, [short(value) for value in ticks])
            axis.set_ticks([], minor=True)
            return
    margin = 0.06 * (high - low) or max(abs(high) * 0.06, 1e-9)
    limits(low - margin, high + margin)
    axis.set_major_formatter(lambda value, _: short(value))


def spread(wanted: Sequence[float], gap: float) -> FloatArray:
    """Positions `[n]` at least `gap` apart, in the order of those wanted `[n]` and as near to them as that allows.

    Where some are too near, they stand evenly about the mean of what they wanted.
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
    found = np.empty(len(order))
    found[order] = np.concatenate([[], *(mean + gap * (np.arange(int(n)) - (n - 1) / 2) for mean, n in groups)])
    return found


def label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write at the right of lines what they are, in their colours: (x, y, text, colour) of each end.

    Labels that would stand on each other are moved up and down; the axes' limits must be set before.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # the layout is known after it
    points = figure.dpi / 72
    heights = [axes.transData.transform((x, y))[1] / points for x, y, _, _ in ends]
    placed = spread(heights, 11.0)
    for (x, y, text, colour), height, at in zip(ends, heights, placed.tolist(), strict=True):
        axes.annotate(
            text, (x, y), (7, at - height), textcoords="offset points", color=colour, va="center", annotation_clip=False
        )
