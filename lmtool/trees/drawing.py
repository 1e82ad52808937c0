"""The top of a tree, its first decisions: as data for a picture, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import word_counts
from lmtool.trees.tree import Int64s, Tree, require_tree, require_words

SHOWN = 4  # of a node's words, the most frequent
LONGEST = 16  # characters of a word


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node or leaf of the drawn part. child: as in Tree.children; 0 for the root. code: the path to it, as bits.

    share: of all counts, those below it. label: words below it, where no children are drawn. children: those drawn.
    """

    child: int
    code: str
    share: float
    label: str
    children: tuple[DrawnNode, ...]


def _leaf_shares(tree: Tree, counts: Int64s) -> npt.NDArray[np.float64]:
    """`[L]`: a word's share of the counts, in equal parts on its leaves; 1/W for each word where nothing occurs."""
    weights = counts if counts.sum() else np.ones(tree.words)
    shares: npt.NDArray[np.float64] = (weights / weights.sum() / np.diff(tree.word_leaves))[tree.leaf_words]
    return shares


def _leaves_below(tree: Tree, child: int) -> Int64s:
    """The leaves below a node, level by level."""
    leaves, level = [], np.array([child])
    while len(level):
        leaves.append(-1 - level[level < 0])
        level = tree.children[level[level >= 0]].reshape(-1)
    return np.concatenate(leaves).astype(np.int64)


def _shortened(word: str) -> str:
    # Where characters are words, white space is one.
    shown = word if word.isprintable() else repr(word)[1:-1]
    shown = shown if shown.strip() else repr(word)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def top_of(tree: Tree, words: Sequence[str], counts: Int64s, levels: int) -> DrawnNode:
    """The root and what is up to `levels` below it. words: `[W]`, as text. counts: int64 `[W]`, in train.

    Raises ValueError for what is no Tree, for fewer words and for counts of another number.
    """
    require_tree("top_of: tree", tree)
    counts = word_counts("top_of: counts", counts, tree.words)
    require_words("top_of: words", words, tree)
    shares = _leaf_shares(tree, counts)

    def node(child: int, code: str) -> DrawnNode:
        below = _leaves_below(tree, child)
        share = float(shares[below].sum())
        if child >= 0 and len(code) < levels:
            children = tuple(node(int(tree.children[child, bit]), code + str(bit)) for bit in (0, 1))
            return DrawnNode(child, code, share, "", children)
        ids = np.unique(tree.leaf_words[below])
        most_frequent = ids[np.argsort(-counts[ids], kind="stable")[:SHOWN]]
        label = ", ".join(_shortened(words[word]) for word in most_frequent)
        if len(ids) > SHOWN:
            label += f", … ({len(ids):,} words)"
        return DrawnNode(child, code, share, label, ())

    return node(0 if tree.nodes else -1, "")


def tree_text(top: DrawnNode) -> str:
    """A line for each node and leaf, indented by its depth: its bit, its share of the counts, its words."""
    lines: list[str] = []

    def write(node: DrawnNode) -> None:
        bit = node.code[-1:] or "·"
        lines.append(f"{'  ' * len(node.code)}{bit} {100 * node.share:5.1f}% {node.label}".rstrip())
        for child in node.children:
            write(child)

    write(top)
    return "\n".join(lines)
