"""What all results have: a heading, a table, notes, and how these are shown."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.system.terminal import Cell, html_table, text_table

if TYPE_CHECKING:
    import pandas

Table = tuple[Sequence[str], Sequence[Sequence[Cell]]]


class Result:
    """A result: a heading, a table and notes. metric: the number that a sweep compares, the lower the better."""

    notes: list[str]

    @property
    def metric(self) -> float | None:
        """What a sweep compares; None where there is nothing to compare."""
        return None

    def heading(self) -> str:
        """What it is, in one line or two."""
        raise NotImplementedError

    def table_text(self) -> str:
        """The table in plain text; empty where it has no rows."""
        header, rows = self._table()
        return text_table(header, rows) if rows else ""

    def _table(self) -> Table:
        raise NotImplementedError

    @property
    def rows(self) -> list[dict[str, Cell]]:
        """The table, a dictionary per row, with all digits."""
        header, rows = self._table()
        return [dict(zip(header, row, strict=True)) for row in rows]

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame. Raises UserError where pandas is not installed."""
        return frame(self.rows)

    def __repr__(self) -> str:
        return "\n".join(filter(None, [self.heading(), self.table_text(), *(f"note: {note}" for note in self.notes)]))

    def _repr_html_(self) -> str:
        header, rows = self._table()
        notes = [f"<p>note: {html.escape(note)}</p>" for note in self.notes]
        table = [html_table(header, rows)] if rows else []
        return "".join([f"<p>{html.escape(self.heading())}</p>", *table, *notes])


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """A table as a DataFrame. Raises UserError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_pandas needs pandas: pip install pandas; .rows has the same as dictionaries") from None
    return pandas.DataFrame(rows)
