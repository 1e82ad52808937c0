"""Base classes of all results: a heading, a table or figures, notes, and their display."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.system.terminal import Cell, cell_text, html_table, text_table

if TYPE_CHECKING:
    import pandas

    from lmtool.trees.analysis import TreeAnalysis
    from lmtool.trees.tree import Tree

NOT_COMPARABLE = "do not compare this perplexity with others"
SUM_UNKNOWN = "sum unknown: perplexities and weights mean something only if its probabilities sum to one"
Table = tuple[Sequence[str], Sequence[Sequence[Cell]]]


@dataclass(repr=False, kw_only=True)
class Result:
    """A result with a heading, a table and notes. metric: the number that a sweep compares; lower is better."""

    notes: list[str] = field(default_factory=list)

    @property
    def metric(self) -> float | None:
        """The number that a sweep compares; None if there is nothing to compare."""
        return None

    def heading(self) -> str:
        """Return a description of the result in one or two lines."""
        raise NotImplementedError

    def table_text(self) -> str:
        """Return the table in plain text; empty if it has no rows."""
        header, rows = self._table()
        return text_table(header, rows) if rows else ""

    def _table(self) -> Table:
        raise NotImplementedError

    @property
    def rows(self) -> list[dict[str, Cell]]:
        """The table as one dictionary per row, with all digits."""
        header, rows = self._table()
        return [dict(zip(header, row, strict=True)) for row in rows]

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame. Raises UserError if pandas is not installed."""
        return frame(self.rows)

    def __repr__(self) -> str:
        return "\n".join(filter(None, [self.heading(), self.table_text(), *(f"note: {note}" for note in self.notes)]))

    def _repr_html_(self) -> str:
        header, rows = self._table()
        notes = [f"<p>note: {html.escape(note)}</p>" for note in self.notes]
        table = [html_table(header, rows)] if rows else []
        return "".join([f"<p>{html.escape(self.heading())}</p>", *table, *notes])


@dataclass(repr=False, kw_only=True)
class TableResult(Result):
    """A result of rows. header: column names."""

    header: list[str]
    table: list[list[Cell]]

    def _table(self) -> Table:
        return self.header, self.table


class Figures(Result):
    """A result of named figures; names of figures that explain the one above are indented."""

    name_width = 20

    def _figures(self) -> Sequence[tuple[str, Cell]]:
        raise NotImplementedError

    def lines(self) -> str:
        """Return the names and values of all figures, one per line."""
        return "\n".join(f"{name:<{self.name_width}} {cell_text(value):>12}" for name, value in self._figures())

    def _table(self) -> Table:
        return ["", "value"], [[name.strip(), value] for name, value in self._figures()]


@dataclass(repr=False)
class Written(Result):
    """The result of `export`, `convert` and `report`. path: the file or folder. about: its content, in one line."""

    path: Path
    about: str

    def heading(self) -> str:
        """Return the path and its content."""
        return f"{self.path}: {self.about}"

    def _table(self) -> Table:
        return [], []


@dataclass(repr=False)
class BuiltTree(Result):
    """The result of `tree`: a tree over a vocabulary.

    analysis: its depths, in decisions. words: the displayed words, each with count, share, depth and code. drawing: its
    top levels as text. build_seconds: time to build it, 0 for the tree of a run.
    """

    kind: str
    tree: Tree
    analysis: TreeAnalysis
    words: list[list[Cell]]
    drawing: str
    build_seconds: float

    @property
    def metric(self) -> float:
        """The mean depth weighted by frequency, in decisions."""
        return self.analysis.weighted_mean_depth

    def heading(self) -> str:
        """Return the size of the tree, its depths and its build time."""
        a = self.analysis
        sizes = f"{a.words:,} words, {a.leaves:,} leaves, {a.nodes:,} inner nodes"
        depths = f"{a.minimal_depth} to {a.maximal_depth}, mean over words {a.mean_depth:.3f}"
        return (
            f"tree={self.kind}: {sizes}{f'; built in {self.build_seconds:.1f} s' if self.build_seconds else ''}\n"
            f"depth: {depths}, weighted by frequency {a.weighted_mean_depth:.3f} (at least the entropy, "
            f"{a.entropy:.3f} bits)"
        )

    def _table(self) -> Table:
        return ["word", "count", "share", "depth", "code"], self.words


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return a table as a DataFrame. Raises UserError if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_pandas needs pandas: pip install pandas; .rows has the same as dictionaries") from None
    return pandas.DataFrame(rows)


def sizes_text(sizes: Sequence[int]) -> str:
    """Return the number of n-grams of each order as text, one line per order."""
    return "\n".join(["order  n-grams", *(f"{order:5}  {count:,}" for order, count in enumerate(sizes, start=1))])
