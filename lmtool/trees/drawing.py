"""The top of a tree as a picture or as text: what its first decisions are about."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmtool.files import written_whole
from lmtool.trees.tree import Int64s, Tree

SHOWN = 4  # of a node's words, the commonest
LONGEST = 16  # characters of a word
INNER, LEAF, LINE = "#1f5fa8", "#b5651d", "#999999"


@dataclass(frozen=True, slots=True)
class Place:
    """A node or leaf of the drawn part. child: as in Tree.children; 0 for the root. code: the way to it.

    share: of the counts below it. label: words below it, for those without drawn children. children: places.
    """

    child: int
    code: str
    share: float
    label: str
    children: tuple[Place, ...]


def _leaf_shares(tree: Tree, counts: Int64s) -> npt.NDArray[np.float64]:
    """`[L]`: a word's count in equal parts on its leaves, of all; equal for all words where nothing occurs."""
    weights = counts if counts.sum() else np.ones(tree.words)
    shares: npt.NDArray[np.float64] = (weights / weights.sum() / np.diff(tree.word_leaves))[tree.leaf_words]
    return shares


def _leaves_below(tree: Tree, child: int) -> Int64s:
    """The leaves below a node, level by level."""
    found, level = [], np.array([child])
    while len(level):
        found.append(-1 - level[level < 0])
        level = tree.children[level[level >= 0]].reshape(-1)
    return np.concatenate(found).astype(np.int64)


def _shortened(word: str) -> str:
    # Any white space is a word where characters are words.
    shown = word if word.isprintable() else repr(word)[1:-1]
    shown = shown if shown.strip() else repr(word)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def top_of(tree: Tree, words: Sequence[str], counts: Int64s, levels: int) -> Place:
    """The root and what stands up to `levels` below it. words: `[W]` names. counts: `[W]`."""
    shares = _leaf_shares(tree, counts)

    def place(child: int, code: str) -> Place:
        below = _leaves_below(tree, child)
        share = float(shares[below].sum())
        if child >= 0 and len(code) < levels:
            children = tuple(place(int(tree.children[child, bit]), code + str(bit)) for bit in (0, 1))
            return Place(child, code, share, "", children)
        found = np.unique(tree.leaf_words[below])
        commonest = found[np.argsort(-counts[found], kind="stable")[:SHOWN]]
        label = ", ".join(_shortened(words[word]) for word in commonest)
        if len(found) > SHOWN:
            label += f", … ({len(found):,} words)"
        return Place(child, code, share, label, ())

    return place(0 if tree.nodes else -1, "")


def tree_text(tree: Tree, words: Sequence[str], counts: Int64s, levels: int = 4) -> str:
    """A line for each node of the top, indented by its depth: its bit, its share of the counts, its words."""
    lines: list[str] = []

    def write(place: Place) -> None:
        bit = place.code[-1:] or "·"
        lines.append(f"{'  ' * len(place.code)}{bit} {100 * place.share:5.1f}% {place.label}".rstrip())
        for child in place.children:
            write(child)

    write(top_of(tree, words, counts, levels))
    return "\n".join(lines)


def tree_picture(tree: Tree, words: Sequence[str], counts: Int64s, picture: Path, levels: int = 4) -> None:
    """Draw the top of the tree into a PNG, the root on the left: shares of the counts, bits, and the commonest words.

    words: `[W]` names. counts: `[W]`. Raises UserError where the picture cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    root = top_of(tree, words, counts, levels)
    free = itertools.count()
    rows: dict[str, float] = {}  # by code, counted from the top of the picture

    def arrange(place: Place) -> float:
        below = [arrange(child) for child in place.children]
        rows[place.code] = sum(below) / 2 if below else float(next(free))
        return rows[place.code]

    arrange(root)
    ends, deepest = next(free), max(len(code) for code in rows)
    longest = max(len(place.label) for place in _all_places(root))
    # Inches: of a row, of a level, and of the words at the right.
    height, step, labels = 0.3 * ends + 0.4, 1.1, 0.075 * longest + 0.9
    width = step * deepest + labels + 0.5
    figure = Figure(figsize=(width, height), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.5, width - 0.5), ylim=(ends - 0.5 + 0.2 / 0.3, -0.5 - 0.2 / 0.3))
    axes.axis("off")
    for place in _all_places(root):
        x, y = step * len(place.code), rows[place.code]
        for bit, child in enumerate(place.children):
            # An elbow, so that the bit stands beside a level line wherever the child is.
            child_y = rows[child.code]
            axes.plot([x, x + 0.35, x + step], [y, child_y, child_y], color=LINE, linewidth=1, zorder=1)
            axes.text(x + 0.5, child_y - 0.06, str(bit), color=LINE, fontsize=8, ha="center", va="bottom")
        axes.plot(x, y, "o", color=LEAF if place.child < 0 else INNER, markersize=5, zorder=2)
        share = f"{100 * place.share:.1f}%" if place.share >= 0.0005 or not place.share else "< 0.1%"
        if place.children:
            axes.text(x - 0.08, y - 0.07, share, color=INNER, fontsize=7, ha="right", va="bottom")
        else:
            axes.text(x + 0.12, y, share, color=INNER, fontsize=7.5, ha="left", va="center")
            # Words may hold dollar signs, which are no formulas.
            axes.text(x + 0.65, y, place.label, fontsize=8.5, ha="left", va="center", parse_math=False)
    with written_whole(picture) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the font has no sign for it: a box is drawn
        figure.savefig(temporary, format="png")


def _all_places(place: Place) -> Iterator[Place]:
    yield place
    for child in place.children:
        yield from _all_places(child)
