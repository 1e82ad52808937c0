"""Statistics of a tree (depths of its leaves), and its top (first decisions), as data for a picture and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import regex

from lmtool.data.text_form import is_drawn
from lmtool.system.arrays import IntArray, whole_numbers, word_counts
from lmtool.system.terminal import letters_of
from lmtool.trees.codes import code_strings
from lmtool.trees.tree import Tree, require_tree, require_words

WORDS_PER_LABEL = 4  # number of most frequent words shown for a node
MAX_WORD_LENGTH = 16  # maximum characters of a word in a label


@dataclass(frozen=True, slots=True)
class TreeAnalysis:
    """Depths of a tree, in decisions from the root to a leaf; for a word with several codes, their mean.

    words, leaves, nodes: number of words W, leaves L and inner nodes N.
    mean_depth: mean over words.
    weighted_mean_depth: mean over the occurrences in train, i.e. decisions per prediction; over words if nothing
    occurs.
    entropy: entropy of the words' shares in train, in bits; a lower bound of weighted_mean_depth for trees with one
    code per word.
    depths: number of leaves at each depth, from 0 on.

    >>> from lmtool.trees import analyze, huffman_tree
    >>> found = analyze(huffman_tree([4, 2, 1, 1]), [4, 2, 1, 1])
    >>> found.weighted_mean_depth, found.entropy, found.depths
    (1.75, 1.75, (0, 1, 1, 2))
    """

    words: int
    leaves: int
    nodes: int
    mean_depth: float
    weighted_mean_depth: float
    minimal_depth: int
    maximal_depth: int
    entropy: float
    depths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PathRow:
    """A code of a word: the word's count in train, its share of all counts, and the code's length.

    >>> from lmtool.trees import huffman_tree, path_rows
    >>> path_rows(huffman_tree([4, 2, 1]), ["the", "cat", "sat"], [4, 2, 1], [1])[0].code
    '10'
    """

    word: str
    count: int
    share: float
    depth: int
    code: str


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node or leaf of the drawn part. child: number as in Tree.children; 0 for the root. code: the path to the node,
    as bits.

    share: share of all counts below it. label: words below it, if no children are drawn. children: the drawn children.

    >>> from lmtool.trees import huffman_tree, top_of
    >>> [child.label for child in top_of(huffman_tree([5, 2, 1]), ["the", "cat", "sat"], [5, 2, 1], 1).children]
    ['the', 'cat, sat']
    """

    child: int
    code: str
    share: float
    label: str
    children: tuple[DrawnNode, ...]


def analyze(tree: Tree, counts: IntArray) -> TreeAnalysis:
    """Analyze a tree over words with counts int64 `[W]` in train.

    Raises ValueError if `tree` is not a Tree or the counts are of another number of words.

    >>> from lmtool.trees import analyze, balanced_tree
    >>> analyze(balanced_tree([0, 1, 2, 3]), [4, 2, 1, 1]).mean_depth
    2.0
    """
    require_tree("analyze: tree", tree)
    counts = word_counts("analyze: counts", counts, tree.words)
    depths = np.bincount(tree.leaf_words, weights=tree.depths) / np.bincount(tree.leaf_words)  # [W]
    total = counts.sum()
    share = counts[counts > 0] / max(total, 1)
    mean = float(depths.mean())
    return TreeAnalysis(
        words=tree.words,
        leaves=tree.leaves,
        nodes=tree.nodes,
        mean_depth=mean,
        weighted_mean_depth=float((depths * counts).sum() / total) if total else mean,
        minimal_depth=int(tree.depths.min()),
        maximal_depth=int(tree.depths.max()),
        entropy=float(np.abs((share * np.log2(share)).sum())),
        depths=tuple(np.bincount(tree.depths).tolist()),
    )


def path_rows(tree: Tree, words: Sequence[str], counts: IntArray, which: Sequence[int]) -> list[PathRow]:
    """Return a row for every code of the words with ids `which`, in their order.

    words: `[W]`, as text. counts: int64 `[W]`, in train. Raises ValueError if `tree` is not a Tree, words or counts are
    too few, or an id is out of range.

    >>> from lmtool.trees import balanced_tree, path_rows
    >>> [(row.word, row.code) for row in path_rows(balanced_tree([0, 1, 2]), ["a", "b", "c"], [1, 1, 1], [2, 0])]
    [('c', '1'), ('a', '00')]
    """
    require_tree("path_rows: tree", tree)
    counts = word_counts("path_rows: counts", counts, tree.words)
    require_words("path_rows: words", words, tree)
    which = whole_numbers("path_rows: which", which, ("N",), below=tree.words).tolist()
    total, codes = max(int(counts.sum()), 1), code_strings(tree)
    rows = []
    for word in which:
        count = int(counts[word])
        for leaf in range(int(tree.word_leaves[word]), int(tree.word_leaves[word + 1])):
            rows.append(PathRow(words[word], count, count / total, len(codes[leaf]), codes[leaf]))
    return rows


def top_of(tree: Tree, words: Sequence[str], counts: IntArray, levels: int) -> DrawnNode:
    """Return the root and up to `levels` levels below it. words: `[W]`, as text. counts: int64 `[W]`, in train.

    Raises ValueError if `tree` is not a Tree, or words or counts are too few.

    >>> from lmtool.trees import balanced_tree, top_of
    >>> top_of(balanced_tree([0, 1, 2]), ["a", "b", "c"], [2, 1, 1], 1).children[0].share
    0.75
    """
    require_tree("top_of: tree", tree)
    counts = word_counts("top_of: counts", counts, tree.words)
    require_words("top_of: words", words, tree)
    weights = counts if counts.sum() else np.ones(tree.words)
    shares = (weights / weights.sum() / np.diff(tree.word_leaves))[tree.leaf_words]  # [L], even among a word's leaves

    def node(child: int, code: str) -> DrawnNode:
        below = _leaves_below(tree, child)
        share = float(shares[below].sum())
        if child >= 0 and len(code) < levels:
            children = tuple(node(int(tree.children[child, bit]), code + str(bit)) for bit in (0, 1))
            return DrawnNode(child, code, share, "", children)
        return DrawnNode(child, code, share, words_below(tree, words, counts, child), ())

    return node(0 if tree.nodes else -1, "")


def words_below(tree: Tree, words: Sequence[str], counts: IntArray, child: int) -> str:
    """Return the most frequent words below a child (as in Tree.children) for a label, and the number of all."""
    ids = np.unique(tree.leaf_words[_leaves_below(tree, child)])
    most_frequent = ids[np.argsort(-counts[ids], kind="stable")[:WORDS_PER_LABEL]]
    label = ", ".join(_isolate(_shorten(words[word])) for word in most_frequent)
    return label + (f", … ({len(ids):,} words)" if len(ids) > WORDS_PER_LABEL else "")


def tree_text(top: DrawnNode) -> str:
    """Return a line for each node and leaf, indented by its depth: its bit, its share of the counts, its words.

    Raises ValueError if `top` is not a DrawnNode.

    >>> from lmtool.trees import balanced_tree, top_of, tree_text
    >>> print(tree_text(top_of(balanced_tree([0, 1, 2]), ["a", "b", "c"], [2, 1, 1], 1)))
    · 100.0%
      0  75.0% a, b
      1  25.0% c
    """
    if not isinstance(top, DrawnNode):
        raise ValueError(f"tree_text: top must be a DrawnNode, as top_of returns it; got a {type(top).__name__}")
    bit = top.code[-1:] or "·"
    line = f"{'  ' * len(top.code)}{bit} {100 * top.share:5.1f}% {top.label}".rstrip()
    return "\n".join([line, *map(tree_text, top.children)])


def _leaves_below(tree: Tree, child: int) -> IntArray:
    """Return the leaves below a node, level by level."""
    leaves, level = [], np.array([child])
    while len(level):
        leaves.append(-1 - level[level < 0])
        level = tree.children[level[level >= 0]].reshape(-1)
    return np.concatenate(leaves).astype(np.int64)


def _isolate(word: str) -> str:
    """Return a word written from right to left with marks of direction, so that its punctuation stays beside it."""
    return f"\u200f{word}\u200f\u200e" if regex.search(r"\p{Bidi_Class=R}|\p{Bidi_Class=AL}", word) else word


def _shorten(word: str) -> str:
    # In text of characters, white space is a word.
    shown = word if is_drawn(word) else repr(word)[1:-1]
    shown = shown if shown.strip() else repr(word)
    letters = letters_of(shown)
    return shown if len(letters) <= MAX_WORD_LENGTH else "".join(letters[: MAX_WORD_LENGTH - 1]) + "…"
