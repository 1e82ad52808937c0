"""Sections become one HTML page that needs nothing but itself: no network, no other file, no script."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape

from lmtool import __version__
from lmtool.plots.style import DARK, LIGHT, as_svg
from lmtool.report.content import Drawing, Picture, Section, Table
from lmtool.system.tables import Cell, cell_text

NONE = "\N{EN DASH}"
STYLE = """
:root { color-scheme: light dark; %(light)s }
@media (prefers-color-scheme: dark) { :root { %(dark)s } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 70rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--grid); }
p, figcaption, summary { color: var(--muted); font-size: .9rem; margin: .5rem 0; max-width: 48rem; }
nav ul { list-style: none; margin: .75rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
a { color: var(--series1); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums lining-nums; }
th, td { padding: .3rem .75rem; text-align: left; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; min-width: 9rem; white-space: normal; }
thead th { border-bottom: 1px solid var(--muted); vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; }
figure { margin: 1rem 0 2rem; }
figure svg { display: block; width: 100%%; height: auto; max-width: var(--natural);
  min-width: min(34rem, var(--natural)); }
figure img { display: block; max-width: 100%%; min-width: 34rem; height: auto; background: #fff; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure svg text { font-family: "DejaVu Sans", Verdana, system-ui, sans-serif !important; }
summary { cursor: pointer; }
@media print { .wide { overflow: visible; } h2, figure { break-inside: avoid; } }
"""


def page(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """The page of sections. title and introduction: plain text, as all texts of the sections."""
    light, dark = (" ".join(f"--{name}: {value};" for name, value in style.items()) for style in (LIGHT, DARK))
    links = "".join(
        f'<li><a href="#section-{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(sections, 1)
    )
    body = "\n".join(_section(number, section) for number, section in enumerate(sections, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="lmtool {__version__}">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE % {'light': light, 'dark': dark}}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{escape(title)}</h1>\n<p>{escape(introduction)}</p>\n"
        + (f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n' if len(sections) > 1 else "")
        + f"</header>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _section(number: int, section: Section) -> str:
    parts = "\n".join(_part(part) for part in section.parts)
    title = f'<h2 id="section-{number}">{escape(section.title)}</h2>'
    return f'<section aria-labelledby="section-{number}">\n{title}\n{parts}\n</section>'


def _part(part: Picture | Drawing | Table | str) -> str:
    match part:
        case Picture():
            return _figure(as_svg(part.figure, part.name, part.told), part.caption)
        case Drawing():
            data = base64.b64encode(part.png).decode()
            return _figure(f'<img src="data:image/png;base64,{data}" alt="{escape(part.told)}">', part.caption)
        case Table():
            drawn = f'<div class="wide" tabindex="0" role="region" aria-label="table">{_table(part)}</div>'
            return f"<details><summary>{escape(part.folded)}</summary>{drawn}</details>" if part.folded else drawn
    return f"<p>{escape(part)}</p>"


def _figure(drawing: str, caption: str) -> str:
    return f'<figure><div class="wide" tabindex="0">{drawing}</div><figcaption>{escape(caption)}</figcaption></figure>'


def _table(table: Table) -> str:
    def cells(row: Sequence[Cell], tag: str, first: str) -> str:
        made = []
        for k, cell in enumerate(row):
            kind = first if k == 0 else tag
            scope = {"td": "", "th": ' scope="col"'}[kind] if tag == "th" else ' scope="row"' if kind == "th" else ""
            number = ' class="number"' if k in table.numeric else ""
            text = escape(NONE if cell is None else cell_text(cell))
            if k == 0:
                text = re.sub(r"(?<=[=/,])(?=\S)", "<wbr>", text)  # where a long name may be broken
            made.append(f"<{kind}{scope}{number}>{text}</{kind}>")
        return f"<tr>{''.join(made)}</tr>"

    head = cells(list(table.header), "th", "th")
    body = "\n".join(cells(row, "td", "th") for row in table.rows)
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
