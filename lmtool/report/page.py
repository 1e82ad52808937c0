"""Sections of pictures, tables and paragraphs, and their self-contained HTML page (template page.html.j2)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lmtool import __version__
from lmtool.errors import escape_controls
from lmtool.plots.style import DARK, LIGHT, as_svg
from lmtool.system.terminal import Cell, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("page.html.j2")


def pictures_of(sections: Sequence[Section]) -> list[Picture]:
    """Return the pictures of sections, with unique names of letters, digits and `-`."""
    pictures, given = [part for section in sections for part in section.parts if isinstance(part, Picture)], set[str]()
    for picture in pictures:
        plain = re.sub(r"[^a-zA-Z0-9]+", "-", picture.name).strip("-")[:60] or "picture"
        numbered = (f"{plain}-{count}" for count in itertools.count(2))
        # Some file systems ignore case.
        picture.name = next(name for name in itertools.chain([plain], numbered) if name.lower() not in given)
        given.add(picture.name.lower())
    return pictures


def page(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """Return the page of sections. title, introduction and all texts in the sections are plain text."""
    loader = FileSystemLoader(TEMPLATE.parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True, finalize=_shown
    )
    environment.filters |= {"text": cell_text, "breakable": _breakable}
    return environment.get_template(TEMPLATE.name).render(
        version=__version__, title=title, introduction=introduction, sections=sections, light=LIGHT, dark=DARK
    )


def _shown(value: object) -> object:
    """Return a value of the page with control characters escaped, unless it is the page's own markup."""
    return escape_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(text: str) -> Markup:
    """Allow breaking a long name after `/`, `,` and `_`."""
    return Markup(re.sub(r"(?<=[/,_])(?=\S)", "<wbr>", str(escape(escape_controls(text)))))


@dataclass(slots=True)
class Picture:
    """A figure. name: file name without suffix. caption: text below the figure, also for screen readers."""

    name: str
    figure: Figure
    caption: str

    def svg(self) -> Markup:
        """Return matplotlib's SVG, in which it has escaped all texts."""
        return Markup(as_svg(self.figure, self.name, self.caption))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header. title: above the table. folded: the line that unfolds the table; if empty, the table is
    shown immediately. unnormalized: rows of models whose scores do not sum to one, shown last, below a note.
    """

    header: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    title: str = ""
    folded: str = ""
    unnormalized: list[list[Cell]] = field(default_factory=list)

    @property
    def numeric(self) -> list[int]:
        """The columns with numbers, which are aligned right."""
        rows = [*self.rows, *self.unnormalized]
        return [k for k in range(len(self.header)) if any(isinstance(row[k], int | float) for row in rows)]


@dataclass(slots=True)
class Section:
    """A heading with its parts; a string is a paragraph."""

    title: str
    parts: list[Picture | Table | str] = field(default_factory=list)
