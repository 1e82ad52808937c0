"""What `tree`, `export`, `convert` and `report` return."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.results.base import Result, Table
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    from lmtool.trees.analysis import TreeAnalysis
    from lmtool.trees.tree import Tree


@dataclass(repr=False)
class BuiltTree(Result):
    """What `tree` built: a tree over a vocabulary. analysis: its depths, in decisions. words: those shown, each with
    count, share, depth and code. drawing: its top levels as text. build_seconds: of building it.
    """

    kind: str
    tree: Tree
    analysis: TreeAnalysis
    words: list[list[Cell]]
    drawing: str
    build_seconds: float
    notes: list[str] = field(default_factory=list)

    @property
    def metric(self) -> float:
        """The mean depth weighted by frequency, in decisions."""
        return self.analysis.weighted_mean_depth

    def heading(self) -> str:
        """What it is."""
        a = self.analysis
        sizes = f"{a.words:,} words, {a.leaves:,} leaves, {a.nodes:,} inner nodes"
        depths = f"{a.minimal_depth} to {a.maximal_depth}, mean over words {a.mean_depth:.3f}"
        return (
            f"tree={self.kind}: {sizes}; built in {self.build_seconds:.1f} s\n"
            f"depth: {depths}, weighted by frequency {a.weighted_mean_depth:.3f} (at least the entropy, "
            f"{a.entropy:.3f} bits)"
        )

    def _table(self) -> Table:
        return ["word", "count", "share", "depth", "code"], self.words


@dataclass(repr=False)
class Written(Result):
    """What `export`, `convert` and `report` wrote. path: the file or folder. about: what it holds, in one line."""

    path: Path
    about: str
    notes: list[str] = field(default_factory=list)

    def heading(self) -> str:
        """What it is."""
        return f"{self.path}: {self.about}"

    def _table(self) -> Table:
        return [], []
