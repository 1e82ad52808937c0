"""Words in pictures: the top of a tree, and maps in a plane with as many labels as fit without overlap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lmtool.plots.style import INK, LTR, MUTED, SERIES, WIDTH, new_figure
from lmtool.system.arrays import FloatArray
from lmtool.trees.analysis import DrawnNode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INNER, LEAF = SERIES[0], SERIES[1]


def tree_figure(root: DrawnNode, title: str = "") -> Figure:
    """Draw the top of a tree, the result of `top_of`, from left to right: shares of counts, bits, frequent words."""
    free = itertools.count()
    rows: dict[str, float] = {}  # row of each code, counted from the top of the picture

    def arrange(place: DrawnNode) -> float:
        below = [arrange(child) for child in place.children]
        rows[place.code] = sum(below) / 2 if below else float(next(free))
        return rows[place.code]

    arrange(root)
    ends, deepest = next(free), max(len(code) for code in rows)
    top = 0.3 * bool(title)
    height, step = 0.26 * ends + 0.4 + top, 1.05  # inches: height of all rows, width of a level
    labels = [place.label for place in _all_places(root)]
    with new_figure(1, height, labels, constrained=False) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        words, heading = [], axes.text(-0.45, -0.5 - 0.3 / 0.26, title, va="center")
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
                words.append(axes.text(x + 0.62, y, LTR + place.label, color=INK, fontsize=8.5, ha="left", va="center"))
        longest = max(text.get_window_extent().width for text in words) / figure.dpi
        titled = heading.get_window_extent().width / figure.dpi + 0.3
        width = max(0.6 + step * deepest + 0.62 + longest + 0.18, titled)
        figure.set_size_inches(width, height)
        axes.set(xlim=(-0.6, width - 0.6), ylim=(ends - 0.5 + 0.2 / 0.26, -0.5 - (0.2 + top) / 0.26))
    return figure


def _all_places(place: DrawnNode) -> Iterator[DrawnNode]:
    yield place
    for child in place.children:
        yield from _all_places(child)


HEIGHT = 6.4  # inches
LABEL_GAP = 1.5  # points between two labels
DOT_GAP = 3.5  # points between the center of a dot and its label
DOT_RADIUS = 1.5  # points

# Sides of a dot for its label, in order of preference: the shares of the label's width and height by which its lower
# left corner is moved, and the direction of the gap.
SHARES = np.array([(0.0, -0.5), (-1.0, -0.5), (-0.5, 0.0), (-0.5, -1.0)])
DIRECTIONS = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])


def label_corners(
    dots: FloatArray, sizes: FloatArray, area: tuple[float, float, float, float]
) -> list[FloatArray | None]:
    """Return the lower left corner `[2]` of each label; None if it would overlap a label or dot, or lie outside.

    dots: `[n, 2]`, the most important first. sizes: widths and heights `[n, 2]`. area: left, bottom, right, top.
    """
    lows, highs = list(dots - DOT_RADIUS), list(dots + DOT_RADIUS)  # opposite corners of the occupied areas
    places: list[FloatArray | None] = []
    for dot, size in zip(dots, sizes, strict=True):
        corners = dot + size * SHARES + DOT_GAP * DIRECTIONS  # [4, 2]
        ends = corners + size
        inside = (corners >= area[:2]).all(axis=1) & (ends <= area[2:]).all(axis=1)
        overlaps = (np.array(lows)[:, None] < ends) & (corners < np.array(highs)[:, None])  # [taken, 4, 2]
        free = np.flatnonzero(inside & ~overlaps.all(axis=2).any(axis=0))
        places.append(corners[free[0]] if len(free) else None)
        if len(free):
            lows.append(corners[free[0]] - (LABEL_GAP, 0))
            highs.append(ends[free[0]] + (LABEL_GAP, 0))
    return places


def map_figure(points: FloatArray, words: Sequence[str], labels: tuple[str, str] | None) -> Figure:
    """Draw a map of words at points `[n, 2]`, most important first. labels: of the axes; None if these mean nothing."""
    with new_figure(WIDTH, HEIGHT, words) as figure:
        axes = figure.add_subplot()
        axes.set_aspect("equal", adjustable="datalim")
        axes.plot(*points.T, linestyle="none", marker="o", markersize=3, color=SERIES[0], markeredgewidth=0)
        axes.margins(0.06)
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        if labels is not None:
            axes.set(xlabel=labels[0], ylabel=labels[1])
        figure.draw_without_rendering()  # computes the layout
        per_point = figure.dpi / 72
        dots = axes.transData.transform(points) / per_point
        box = axes.get_window_extent()
        area = (box.x0 / per_point, box.y0 / per_point, box.x1 / per_point, box.y1 / per_point)
        texts = [axes.annotate(word, point, fontsize=8, color=INK) for word, point in zip(words, points, strict=True)]
        extents = [text.get_window_extent() for text in texts]
        sizes = np.array([[extent.width, extent.height] for extent in extents]) / per_point
        for text, dot, size, place in zip(texts, dots, sizes, label_corners(dots, sizes, area), strict=True):
            text.remove()
            if place is not None:
                middle = place - dot + size * (0, 0.5)
                axes.annotate(
                    text.get_text(), text.xy, tuple(middle), textcoords="offset points", fontsize=8, va="center"
                )
    return figure
