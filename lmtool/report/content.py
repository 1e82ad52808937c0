"""What a page is made of: sections of pictures, tables and paragraphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmtool.system.tables import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure to be drawn. name: of its file, without the suffix; caption: below it; told: in words what it shows."""

    name: str
    figure: Figure
    caption: str
    told: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A PNG that another command left."""

    name: str
    png: bytes
    caption: str
    told: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header; a column of numbers, given as such or as text, is set to the right. folded: shown on demand,
    under this line.
    """

    header: list[str]
    rows: list[list[Cell]]
    numeric: tuple[int, ...] = ()
    folded: str = ""


@dataclass(slots=True)
class Section:
    """A heading and what stands under it; a paragraph is a string."""

    title: str
    parts: list[Picture | Drawing | Table | str] = field(default_factory=list)
