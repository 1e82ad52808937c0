"""The content of a page: sections of pictures, tables and paragraphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure. name: of its file, without the suffix. caption: below it. description: in words, for screen readers."""

    name: str
    figure: Figure
    caption: str
    description: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A PNG that another command wrote; the fields as those of Picture."""

    name: str
    png: bytes
    caption: str
    description: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header. numeric: the columns that are aligned right. title: above the table. folded: the line that
    unfolds the table; empty for a table that is shown at once. apart: rows of models whose scores do not sum to one,
    which come last, below a note.
    """

    header: list[str]
    rows: list[list[Cell]]
    numeric: tuple[int, ...] = ()
    title: str = ""
    folded: str = ""
    apart: list[list[Cell]] = field(default_factory=list)


@dataclass(slots=True)
class Section:
    """A heading with its parts; a string is a paragraph."""

    title: str
    parts: list[Picture | Drawing | Table | str] = field(default_factory=list)
