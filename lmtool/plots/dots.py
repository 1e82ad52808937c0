"""Dot plots, one row for each value, the lowest at the top: perplexities with their intervals, differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.plots.axes import VALUE_RATIO, number_axis, short
from lmtool.plots.style import MUTED, SERIES, WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 40  # characters of a name beside the axis


@dataclass(frozen=True, slots=True)
class Dot:
    """A value with its name. text: the value as it is written. interval: its 95 % confidence interval, if there is
    one.
    """

    name: str
    value: float
    text: str
    interval: tuple[float, float] | None = None


def dots_figure(dots: Sequence[Dot], label: str, *, zero: bool = False) -> Figure:
    """Dots, lowest value first, with their intervals. label: of the axis. zero: whether to mark 0."""
    ranked = sorted(dots, key=lambda dot: dot.value)
    ends = [value for dot in ranked for value in (dot.value, *(dot.interval or ()))]
    if zero:
        ends.append(0.0)
    with new_figure(WIDTH, 0.75 + 0.27 * len(ranked)) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "x", ends, log=min(ends) > 0 and max(ends) > VALUE_RATIO * min(ends))
        axes.set_ylim(len(ranked) - 0.4, -0.6)
        axes.set_yticks(range(len(ranked)), [clipped(dot.name) for dot in ranked])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(False, axis="y")
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
        axes.xaxis.set_tick_params(which="both")
        if axes.get_xscale() == "linear":
            axes.locator_params(axis="x", nbins=7)
            axes.xaxis.set_major_formatter(lambda value, _: short(value))
    return figure


def clipped(name: str) -> str:
    """A name beside an axis, without the beginning of a long one: its end says more."""
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"
