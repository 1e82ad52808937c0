"""The top of a tree, what its first decisions are about: its places, and these as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmtool.trees.tree import Int64s, Tree

SHOWN = 4  # of a node's words, the commonest
LONGEST = 16  # characters of a word


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


def tree_text(top: Place) -> str:
    """A line for each place, indented by its depth: its bit, its share of the counts, its words."""
    lines: list[str] = []

    def write(place: Place) -> None:
        bit = place.code[-1:] or "·"
        lines.append(f"{'  ' * len(place.code)}{bit} {100 * place.share:5.1f}% {place.label}".rstrip())
        for child in place.children:
            write(child)

    write(top)
    return "\n".join(lines)
