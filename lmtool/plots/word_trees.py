"""A tree over words that shows itself: as text, as a table and, in a notebook, as a picture."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.results.base import MERGED, UNSAVED, Result, Table, TableResult, table_of
from lmtool.system.arrays import IntArray
from lmtool.system.terminal import Cell, nearest
from lmtool.trees.analysis import DrawnNode, PathRow, TreeAnalysis, analyze, path_rows, top_of, tree_text, words_below
from lmtool.trees.codes import code_strings
from lmtool.trees.tree import Tree

Code = list[tuple[int, int, float]]  # the decisions of a code: node, bit, probability


@dataclass(repr=False)
class WordTree(Result):
    """A tree over the words of a vocabulary: the result of `tree`, and `tree` of a model.

    kind: the option that built it, empty if unknown. tree: the Tree, over ids. labels: the words `[W]` by id. counts:
    int64 `[W]`, in train. shown: ids of the words in the table. levels: number of drawn levels. seconds: time to build
    it, 0 for the tree of a run. analysis: its depths, in decisions. expected_length: mean length of a word's code by
    counts, i.e. decisions per prediction. words: the shown words. top: its top levels. drawing: the same as text.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"])
    >>> tree = lmtool.tree("huffman", corpus)
    >>> tree.codes["the"], tree.expected_length
    ('01', 2.375)
    >>> tree.path("the").rows[1]
    {'code': '01', 'node': 1, 'below 0': 'cat, dog, <unk>', 'below 1': 'the'}
    """

    metric_name = "expected_length"

    kind: str
    tree: Tree = field(metadata=UNSAVED)
    labels: Sequence[str] = field(metadata=UNSAVED)
    counts: IntArray = field(metadata=UNSAVED)
    shown: Sequence[int] = field(metadata=UNSAVED, default=())
    levels: int = field(metadata=UNSAVED, default=4)
    seconds: float = 0.0
    analysis: TreeAnalysis = field(metadata=MERGED, init=False)
    expected_length: float = field(metadata=UNSAVED, init=False)
    words: list[PathRow] = field(metadata=UNSAVED, init=False)
    top: DrawnNode = field(init=False)
    drawing: str = field(metadata=UNSAVED, init=False)

    def __post_init__(self) -> None:
        self.analysis = analyze(self.tree, self.counts)
        self.expected_length = self.analysis.weighted_mean_depth
        self.words = path_rows(self.tree, self.labels, self.counts, self.shown)
        self.top = top_of(self.tree, self.labels, self.counts, self.levels)
        self.drawing = tree_text(self.top)

    @property
    def codes(self) -> dict[str, str]:
        """The code of each word, 0 for the first child; several codes of a word are separated by spaces."""
        codes, leaves = code_strings(self.tree), self.tree.word_leaves.tolist()
        return {word: " ".join(codes[leaves[k] : leaves[k + 1]]) for k, word in enumerate(self.labels)}

    def path(self, word: str, decisions: Sequence[Code] | None = None) -> TableResult:
        """Return the nodes on the path to a word as a table: the code so far, and the words below either child. A word
        with several codes has several paths, which are numbered.

        decisions: of each code of the word, for columns p. Raises UserError if the tree does not have the word.
        """
        if word not in self.labels:
            raise UserError(f"{word!r:.60} is not a word of the tree{nearest(str(word), self.labels)}")
        tree, index, rows = self.tree, list(self.labels).index(word), list[dict[str, Cell]]()
        first, last = tree.word_leaves[index : index + 2].tolist()
        codes, several = code_strings(tree)[first:last], last - first > 1
        products = [math.prod(p for *_, p in code) for code in decisions or ()]
        for number, code in enumerate(codes):
            nodes = tree.paths.nodes[tree.paths.offsets[first + number] :][: len(code)].tolist()
            for k, node in enumerate(nodes):
                row: dict[str, Cell] = {"path": number + 1, "code": code[: k + 1], "node": node}
                row |= {"p": decisions[number][k][2], "p of the path": products[number]} if decisions else {}
                below = [words_below(tree, self.labels, self.counts, child) for child in tree.children[node].tolist()]
                rows.append(row | {"below 0": below[0], "below 1": below[1]})
        about = f"{word}: code{'s' * several} {' and '.join(codes)}"
        if products:
            about += f", p = {' + '.join(f'{p:.6g}' for p in products)}{f' = {sum(products):.6g}' * several}"
        header = [name for row in rows[:1] for name in row if several or "path" not in name]
        return TableResult(header=header, table=[[row[name] for name in header] for row in rows], about=about)

    def as_table(self) -> Table:
        return table_of(self.words)

    def table_text(self) -> str:
        """Return the table of words, if any, and the drawing."""
        return "\n\n".join(filter(None, [super().table_text(), self.drawing]))

    def heading(self) -> str:
        a, kind = self.analysis, f"={self.kind}" * bool(self.kind)
        built = f"; built in {self.seconds:.1f} s" * bool(self.seconds)
        return (
            f"tree{kind}: {a.words:,} words, {a.leaves:,} leaves, {a.nodes:,} inner nodes{built}\n"
            f"depth: {a.minimal_depth} to {a.maximal_depth}, mean over words {a.mean_depth:.3f}, weighted by frequency "
            f"{a.weighted_mean_depth:.3f} (at least the entropy, {a.entropy:.3f} bits)"
        )

    def _repr_html_(self) -> str:
        from lmtool.plots.style import as_png
        from lmtool.plots.word_pictures import tree_figure

        drawn = f"<pre>{escape(self.drawing)}</pre>"
        if can_plot():
            drawn = f'<img alt="top" src="data:image/png;base64,{b64encode(as_png(tree_figure(self.top))).decode()}">'
        return f"{super()._repr_html_()}{drawn}"
