"""Cut tables of text into cells, with the separators and quotes that pandas, R and spreadsheets write."""

from __future__ import annotations

import csv
import io
import re
from pathlib import PurePosixPath
from typing import Any

from lmtool.errors import UserError
from lmtool.system.arrays import decimal
from lmtool.system.terminal import note_once

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
WITH_QUOTE = re.compile(r'(?<![^\t\r\n])[^\t\r\n"]*"[^\t\r\n]*')  # a cell
QUOTED = re.compile(r'"([^"]|"")*"')


def cells_of(content: str, name: str) -> tuple[list[str], list[list[str]], str]:
    """Return the names of the columns, the cells of each row, and the separator, by the first line and the name."""
    unquoted = re.sub('"[^"]*"', "", content.partition("\n")[0])
    usual = "," if ".csv" in PurePosixPath(name).suffixes else "\t"
    mark = next((mark for mark in (usual, *SEPARATORS) if mark in unquoted), usual)
    if mark != usual:
        note_once(f"{name}: its columns are separated by {SEPARATORS[mark]}")
    quoted = '"' in content and (mark != "\t" or _is_quoted(content, name))
    quoting: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    lines = csv.reader(io.StringIO(content, newline=""), delimiter=mark, quoting=quoting, strict=True)
    try:
        header, *rows = lines
    except csv.Error as error:
        raise UserError(f"{name}, line {lines.line_num}: not a table ({error}): check its quotes") from None
    while rows and not rows[-1]:
        rows.pop()
    if len(set(header)) < len(header):
        raise UserError(f"{name}: the header has a name twice ({', '.join(header)}): rename one")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            cells = f"{len(row)} cells, but the header has {len(header)}"
            raise UserError(f"{name}, row {number}: {cells}: correct the row")
    return header, rows, mark


def number(cell: str, mark: str) -> float:
    """Return the number in a cell, nan for other text. mark: the separator; with `;`, a comma is the decimal point."""
    return decimal(cell.replace(",", ".") if mark == ";" else cell)


def _is_quoted(content: str, name: str) -> bool:
    """Return whether quotes in a tab-separated table enclose cells, as written by pandas, R and Excel.

    They do if each cell with a quote is enclosed in quotes, with inner quotes doubled, and one of these cells is in the
    header or contains a quote or (Excel) a comma: no program encloses only "No!".
    """
    cells = list(WITH_QUOTE.finditer(content))
    letter = next((cell for cell in cells if not QUOTED.fullmatch(cell[0])), None)
    encloses = any(QUOTED.fullmatch(cell[0]) and ('""' in cell[0][1:-1] or not cell.start()) for cell in cells)
    if letter and encloses:
        where = f"{name}, line {content.count(chr(10), 0, letter.start()) + 1}: {letter[0]}"
        raise UserError(f"{where} has quotes that are not doubled, but other cells are quoted: write the table as .csv")
    return letter is None and (encloses or any("," in cell[0] for cell in cells))
