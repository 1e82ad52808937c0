"""Sections become one HTML page that needs nothing but itself: the template page.html.j2, all texts escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lmtool import __version__
from lmtool.errors import for_terminal
from lmtool.plots.style import DARK, LIGHT, as_svg
from lmtool.report.content import Picture, Section
from lmtool.system.terminal import Cell, cell_text

NONE = "\N{EN DASH}"
TEMPLATE = Path(__file__).with_name("page.html.j2")


def page(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """The page of sections. title and introduction are plain text, as are all texts in the sections."""
    loader = FileSystemLoader(TEMPLATE.parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True, finalize=_shown
    )
    environment.filters |= {"text": _text, "breakable": _breakable, "base64": _base64, "svg": _svg}
    return environment.get_template(TEMPLATE.name).render(
        version=__version__, title=title, introduction=introduction, sections=sections, light=LIGHT, dark=DARK
    )


def _shown(value: object) -> object:
    """Any text of the page, but for markup of ours, with control characters as escapes."""
    return for_terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _text(cell: Cell) -> str:
    return NONE if cell is None else cell_text(cell)


def _breakable(text: str) -> Markup:
    """A long name may be broken after `/`, `,` and `_`."""
    return Markup(re.sub(r"(?<=[/,_])(?=\S)", "<wbr>", str(escape(for_terminal(text)))))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _svg(picture: Picture) -> Markup:
    """matplotlib's SVG, in which it has escaped all texts."""
    return Markup(as_svg(picture.figure, picture.name, picture.description))
