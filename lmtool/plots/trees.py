"""The top of a tree as a picture, the root on the left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lmtool.plots.style import INK, MUTED, SERIES, new_figure
from lmtool.trees.analysis import DrawnNode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INNER, LEAF = SERIES[0], SERIES[1]


def tree_figure(root: DrawnNode) -> Figure:
    """The top of a tree, as `top_of` gives it: shares of the counts, bits, and the most frequent words."""
    free = itertools.count()
    rows: dict[str, float] = {}  # by code, counted from the top of the picture

    def arrange(place: DrawnNode) -> float:
        below = [arrange(child) for child in place.children]
        rows[place.code] = sum(below) / 2 if below else float(next(free))
        return rows[place.code]

    arrange(root)
    ends, deepest = next(free), max(len(code) for code in rows)
    longest = max(len(place.label) for place in _all_places(root))
    # Inches: of a row, of a level, and of the words at the right.
    height, step, labels = 0.26 * ends + 0.4, 1.05, 0.078 * longest + 0.8
    width = step * deepest + labels + 0.6
    with new_figure(width, height, constrained=False) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-0.6, width - 0.6), ylim=(ends - 0.5 + 0.2 / 0.26, -0.5 - 0.2 / 0.26))
        axes.axis("off")
        for place in _all_places(root):
            x, y = step * len(place.code), rows[place.code]
            for bit, child in enumerate(place.children):
                # An elbow, so that the bit stands beside a level line wherever the child is.
                child_y = rows[child.code]
                axes.plot([x, x + 0.35, x + step], [y, child_y, child_y], color=MUTED, linewidth=0.8, zorder=1)
                axes.text(x + 0.42, child_y - 0.06, str(bit), color=MUTED, fontsize=8, ha="center", va="bottom")
            axes.plot(x, y, "o" if place.child >= 0 else "s", color=LEAF if place.child < 0 else INNER, zorder=2)
            share = f"{100 * place.share:.1f}%" if place.share >= 0.0005 or not place.share else "< 0.1%"
            if place.children:
                axes.text(x - 0.08, y - 0.09, share, color=INNER, fontsize=8, ha="right", va="bottom")
            else:
                axes.text(x + 0.1, y, share, color=INNER, fontsize=8, ha="left", va="center")
                axes.text(x + 0.62, y, place.label, color=INK, fontsize=8.5, ha="left", va="center")
    return figure


def _all_places(place: DrawnNode) -> Iterator[DrawnNode]:
    yield place
    for child in place.children:
        yield from _all_places(child)
