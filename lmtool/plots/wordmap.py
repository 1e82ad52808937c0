"""Words as dots in a plane, with as many labels as fit without overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lmtool.plots.style import INK, SERIES, WIDTH, new_figure
from lmtool.system.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 6.4  # inches
CLEAR = 1.5  # points between two labels
NEAR = 3.5  # points between the centre of a dot and its label
DOT = 1.5  # radius of a dot in points

# The sides of a dot for its label: the shares of the label's width and height by which its lower left corner is moved,
# and the direction of the gap. The first free side is taken.
_PLACES = ((0.0, -0.5, 1, 0), (-1.0, -0.5, -1, 0), (-0.5, 0.0, 0, 1), (-0.5, -1.0, 0, -1))


def place_labels(
    dots: FloatArray, sizes: FloatArray, area: tuple[float, float, float, float]
) -> list[FloatArray | None]:
    """The lower left corner `[2]` of each label; None for one that would overlap another one or a dot, or lie outside.

    dots: `[n, 2]`, the most important first. sizes: widths and heights `[n, 2]`. area: left, bottom, right, top. All in
    the same unit, such as points.
    """
    taken = np.concatenate([dots - DOT, dots + DOT], axis=1)
    places: list[FloatArray | None] = []
    for dot, size in zip(dots, sizes, strict=True):
        free_corner = None
        for right, up, sideways, upwards in _PLACES:
            corner = dot + size * (right, up) + NEAR * np.array([sideways, upwards])
            box = np.concatenate([corner, corner + size])
            inside = box[0] >= area[0] and box[1] >= area[1] and box[2] <= area[2] and box[3] <= area[3]
            if inside and not overlapping(taken, box).any():
                free_corner = corner
                taken = np.concatenate([taken, [box + np.array([-CLEAR, 0, CLEAR, 0])]])
                break
        places.append(free_corner)
    return places


def overlapping(boxes: FloatArray, box: FloatArray) -> npt.NDArray[np.bool_]:
    """Which of boxes `[n, 4]`, each left, bottom, right, top, overlap a box `[4]`: bool `[n]`."""
    shared: npt.NDArray[np.bool_] = (
        (boxes[:, 0] < box[2]) & (box[0] < boxes[:, 2]) & (boxes[:, 1] < box[3]) & (box[1] < boxes[:, 3])
    )
    return shared


def map_figure(points: FloatArray, words: Sequence[str], labels: tuple[str, str] | None) -> Figure:
    """A map of words. points: `[n, 2]`, the most important words first. labels: of the axes, None where only distances
    have a meaning.
    """
    with new_figure(WIDTH, HEIGHT) as figure:
        axes = figure.add_subplot()
        axes.set_aspect("equal", adjustable="datalim")
        axes.plot(*points.T, linestyle="none", marker="o", markersize=3, color=SERIES[0], markeredgewidth=0)
        axes.margins(0.06)
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        if labels is not None:
            axes.set(xlabel=labels[0], ylabel=labels[1])
        figure.draw_without_rendering()  # the layout is known after it
        per_point = figure.dpi / 72
        dots = axes.transData.transform(points) / per_point
        box = axes.get_window_extent()
        area = (box.x0 / per_point, box.y0 / per_point, box.x1 / per_point, box.y1 / per_point)
        texts = [axes.annotate(word, point, fontsize=8, color=INK) for word, point in zip(words, points, strict=True)]
        extents = [text.get_window_extent() for text in texts]
        sizes = np.array([[extent.width, extent.height] for extent in extents]) / per_point
        for text, dot, size, place in zip(texts, dots, sizes, place_labels(dots, sizes, area), strict=True):
            text.remove()
            if place is not None:
                middle = place - dot + size * (0, 0.5)
                axes.annotate(
                    text.get_text(), text.xy, tuple(middle), textcoords="offset points", fontsize=8, va="center"
                )
    return figure
