"""A result that shows itself as a table: in text, Markdown, LaTeX, HTML for notebooks and pandas, and as JSON."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from lmtool.errors import UserError, escape_controls
from lmtool.system.terminal import Cell, cell_text, html_table, latex_table, markdown_table, text_table

if TYPE_CHECKING:
    import pandas

UNSAVED = {"saved": False}  # metadata of a field that is not written to result.json
MERGED = {"merged": True}  # metadata of a field whose own entries are entries of result.json
T = TypeVar("T")
Table = tuple[Sequence[str], Sequence[Sequence[Cell]]]


class Figure(NamedTuple):
    """How a field is printed.

    heading: before a figure, or above a column; a format of the result or row, as `title` is.
    unit: what follows the value; a share is printed in %.
    digits: number of decimals; None: those of cell_text.
    show: returns what is printed of a result or row, instead of the field; a list is several figures with headings.
    """

    heading: str = ""
    unit: str = ""
    digits: int | None = None
    show: Callable[[Any], Any] | None = None

    def value(self, row: Any, name: str) -> Any:
        """Return what is printed of the field of this name."""
        return getattr(row, name) if self.show is None else self.show(row)

    def cell(self, value: Any) -> Cell:
        """Return a value as it is printed."""
        if self.unit == "%" and value is not None:
            return f"{100 * value:.4g} %"
        cell: Cell = value if self.digits is None or value is None else round(value, self.digits or None)
        return f"{cell_text(cell)} {self.unit}" if self.unit and cell is not None else cell


def figure(heading: str = "", **about: Any) -> dict[str, Figure]:
    """Return the metadata of a field that is printed. about: unit, digits and show, as in Figure."""
    return {"figure": Figure(heading, **about)}


def figures_of(kind: Any) -> dict[str, Figure]:
    """Return how the fields of a dataclass are printed: those that say it."""
    return {each.name: each.metadata["figure"] for each in fields(kind) if "figure" in each.metadata}


def as_json(value: Any) -> Any:
    """Return a value as it is written to result.json.

    A Result becomes its `as_json`. A path becomes its text. A dataclass becomes its fields, without the _ of names such
    as from_. Left out: unset fields, None, True and False equal to the default, nan.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value.as_json() if isinstance(value, Result) else _entries(value) if is_dataclass(value) else value


def _entries(value: Any) -> dict[str, Any]:
    saved: dict[str, Any] = {}
    known = getattr(value, "__dict__", None)  # None with slots, all of which are set
    for each in fields(value):
        if each.metadata.get("saved", True) and (known is None or each.name in known):
            content = getattr(value, each.name)
            by_default = content is each.default and isinstance(content, bool | None)
            if each.metadata.get("merged"):
                saved |= as_json(content)
            elif not by_default and content == content:
                saved[each.name.rstrip("_")] = as_json(content)
    return saved


def result_from_json(kind: type[T], saved: Mapping[str, Any], **others: Any) -> T:
    """Return a dataclass with the values that `as_json` saved, and `others`; null for a number means inf."""
    values = {each: saved[each.name.rstrip("_")] for each in fields(kind) if each.name.rstrip("_") in saved}  # type: ignore[arg-type]
    known = {each.name: inf if value is None and each.type == "float" else value for each, value in values.items()}
    return kind(**known | others)


def table_of(rows: Sequence[Any]) -> tuple[list[str], list[list[Cell]]]:
    """Return the header and the lines of rows, dataclasses of one type. The columns are the fields with headings or, if
    no field has a heading, all fields under their names.
    """
    if not rows:
        return [], []
    columns = figures_of(rows[0]) or {each.name: Figure(each.name) for each in fields(rows[0])}
    cells = [[column.cell(column.value(row, name)) for name, column in columns.items()] for row in rows]
    return [column.heading.format(rows[0]) for column in columns.values()], cells


@dataclass(repr=False, kw_only=True)
class Result:
    """A result with a heading, a table and notes.

    title: format of the heading. metric_name: name of the field that is the metric.
    """

    title: ClassVar[str] = ""
    metric_name: ClassVar[str] = ""

    notes: list[str] = field(metadata=UNSAVED, default_factory=list)

    @property
    def metric(self) -> float | None:
        """The number that a sweep compares, lower is better; None if there is nothing to compare."""
        value: float | None = vars(self).get(self.metric_name)
        return value

    def heading(self) -> str:
        """Return a description of the result in one or two lines."""
        return self.title.format(self)

    def table_text(self) -> str:
        """Return the table in plain text; empty if it has no rows."""
        header, rows = self.as_table()
        return text_table(header, rows) if rows else ""

    def as_table(self) -> Table:
        """Return the header and the rows of the table; none by default."""
        return [], []

    @property
    def rows(self) -> list[dict[str, Cell]]:
        """The table as one dictionary per row, with all digits."""
        header, rows = self.as_table()
        return [dict(zip(header, row, strict=True)) for row in rows]

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        return _entries(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame. Raises UserError if pandas is not installed."""
        return frame(self.rows)

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        return markdown_table(*self.as_table())

    def to_latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        return latex_table(*self.as_table())

    def __repr__(self) -> str:
        parts = [self.heading(), self.table_text(), *(f"note: {note}" for note in self.notes)]
        return escape_controls("\n".join(filter(None, parts)))

    def _repr_html_(self) -> str:
        header, rows = self.as_table()
        notes = [f"<p>note: {html.escape(note)}</p>" for note in self.notes]
        table = [html_table(header, rows)] if rows else []
        return "".join([f"<p>{html.escape(self.heading())}</p>", *table, *notes])


@dataclass(repr=False, kw_only=True)
class TableResult(Result):
    """A result of rows. header: column names. about: its heading."""

    header: list[str] = field(metadata=UNSAVED)
    table: list[list[Cell]] = field(metadata=UNSAVED)
    about: str = field(metadata=UNSAVED, default="")

    def heading(self) -> str:
        return self.about or super().heading()

    def as_table(self) -> Table:
        return self.header, self.table


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return a table as a DataFrame. Raises UserError if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_pandas needs pandas: pip install pandas; .rows has the same as dictionaries") from None
    return pandas.DataFrame(rows)
