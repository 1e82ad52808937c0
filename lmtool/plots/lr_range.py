"""A learning-rate range test as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmtool.plots.axes import number_axis
from lmtool.plots.style import INK, MUTED, SERIES, WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    with new_figure(WIDTH, 3.4) as figure:
        axes = figure.add_subplot()
        number_axis(axes, "x", [*rates, proposed], log=True)
        # Scaled for the fall of the loss, which the rise at the end would dwarf.
        fall = max(max(shown[: max(1, len(shown) // 2)]) - min(shown), 0.1)
        low, high = min(shown) - fall / 2, min(min(shown) + 4 * fall, max(*losses, *shown))
        number_axis(axes, "y", [low, high], log=False)
        axes.plot(rates, losses, color=MUTED, linewidth=0.8, alpha=0.5)
        axes.plot(rates[start:], shown, color=SERIES[0])
        axes.axvline(proposed, color=SERIES[1], linestyle="--", linewidth=1.2)
        right = math.log(proposed / rates[0]) > 0.6 * math.log(rates[-1] / rates[0])
        axes.annotate(
            f"proposed: {proposed:.2g}",
            (proposed, 1),
            (-5 if right else 5, -4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=SERIES[1],
            ha="right" if right else "left",
            va="top",
        )
        axes.set(xlabel="learning rate", ylabel="training loss (nats)")
        if title is not None:
            axes.set_title(title, loc="left", color=INK)
    return figure
