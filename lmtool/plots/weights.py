"""The weights of a mixture: a bar for each member, or a bar for each class of context with a part for each member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmtool.plots.dots import clipped
from lmtool.plots.style import LIGHT, SERIES, WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NARROWEST = 0.07  # weight from which a part shows its number


def weight_bars(names: Sequence[str], weights: Sequence[float]) -> Figure:
    """A bar for each member, the largest weight first."""
    ranked = sorted(zip(names, weights, strict=True), key=lambda each: -each[1])
    with new_figure(WIDTH, 0.65 + 0.3 * len(ranked)) as figure:
        axes = figure.add_subplot()
        axes.barh(range(len(ranked)), [weight for _, weight in ranked], height=0.66, color=SERIES[0])
        for row, (_, weight) in enumerate(ranked):
            axes.annotate(f"{weight:.3f}", (weight, row), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(ranked)), [clipped(name) for name, _ in ranked])
        axes.set_ylim(len(ranked) - 0.4, -0.6)
        axes.set_xlim(0, max(1.0, *weights))
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
        axes.set_xlabel("weight")
    return figure


def class_bars(names: Sequence[str], table: Sequence[Sequence[float]]) -> Figure:
    """A bar for each of K classes, the number of words of the context that have been seen. table: weights `[K, M]`."""
    with new_figure(WIDTH, 0.95 + 0.3 * len(table) + 0.18 * (len(names) > 3)) as figure:
        axes = figure.add_subplot()
        colours = [SERIES[k % len(SERIES)] for k in range(len(names))]
        left = [0.0] * len(table)
        for member, (name, colour) in enumerate(zip(names, colours, strict=True)):
            weights = [row[member] for row in table]
            bars = axes.barh(range(len(table)), weights, left=left, height=0.72, color=colour, label=clipped(name))
            for bar in bars:
                bar.set(edgecolor=LIGHT["page"], linewidth=1)
            for row, weight in enumerate(weights):
                if weight >= NARROWEST:
                    at = left[row] + weight / 2
                    axes.text(at, row, f"{weight:.2f}", color=LIGHT["page"], ha="center", va="center")
                left[row] += weight
        seen = [
            "no word of the context seen",
            "1 word seen",
            *(f"{length} words seen" for length in range(2, len(table))),
        ]
        axes.set_yticks(range(len(table)), seen[: len(table)])
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.tick_params(axis="y", length=0)
        axes.grid(False)
        axes.set_xlabel("weight")
        columns = 3 if len(names) > 2 else 2
        figure.legend(loc="outside upper left", ncols=columns, frameon=False, handlelength=1, labelcolor="linecolor")
    return figure
