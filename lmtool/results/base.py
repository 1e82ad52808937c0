"""Base classes of all results.

A result is a dataclass. A field that is printed declares its heading, unit and digits once, by `figure`; the printed
text, Markdown, LaTeX, HTML for notebooks, pandas and result.json derive from the fields.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from lmtool.errors import UserError, escape_controls
from lmtool.system.files import read_json
from lmtool.system.schemas import RESULT
from lmtool.system.terminal import Cell, cell_text, html_table, latex_table, markdown_table, text_table

if TYPE_CHECKING:
    import pandas

NOT_COMPARABLE = "do not compare this perplexity with others"
SUM_UNKNOWN = "sum unknown: perplexities and weights mean something only if its probabilities sum to one"
CONTEXTS: dict[bool | None, str] = {True: "across sentences", False: "of one line"}  # if the model may cross sentences
UNSAVED = {"saved": False}  # metadata of a field that is not written to result.json
MERGED = {"merged": True}  # metadata of a field whose own entries are entries of result.json
FULL_WINDOWS = ", full windows"  # after the split of a perplexity that is of these alone
METRIC_NAMES = ("valid_perplexity", "perplexity")
CLOZE_METRIC = "cloze_perplexity"  # the metric if no text is scored, or with metric=cloze_perplexity
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

    title: format of the heading. metric_name: name of the field that is the metric. metric_: CLOZE_METRIC if the
    perplexity of the result's cloze questions is the metric instead.
    """

    title: ClassVar[str] = ""
    metric_name: ClassVar[str] = ""

    notes: list[str] = field(metadata=UNSAVED, default_factory=list)
    metric_: str | None = None

    @property
    def metric(self) -> float | None:
        """The number that a sweep compares, lower is better; None if there is nothing to compare."""
        known = vars(self)
        if known.get("cloze") and (self.metric_ == CLOZE_METRIC or self.metric_name not in known):
            return float(known["cloze"]["perplexity"])
        value: float | None = known.get(self.metric_name)
        return value

    def rank_by(self, metric: str) -> None:
        """Set the metric, one of config.verbs.METRICS. Raises UserError if it needs cloze questions and has none."""
        if metric == CLOZE_METRIC:
            self.metric_ = metric
            if not vars(self).get("cloze"):
                raise UserError(f"metric={metric}: {self.heading()} has no cloze questions with answers")

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


class Figures(Result):
    """A result of named figures; names of figures that explain the one above are indented."""

    name_width = 20

    def _figures(self) -> list[tuple[str, Cell]]:
        """Return the headings and values of the printed fields that are set, except those whose value is None."""
        figures: list[tuple[str, Cell]] = []
        for name, each in figures_of(self).items():
            if name in vars(self):
                value = each.value(self, name)
                figures += value if isinstance(value, list) else [(each.heading.format(self), each.cell(value))]
        return [(heading, cell) for heading, cell in figures if cell is not None]

    def table_text(self) -> str:
        """Return the names and values of all figures, one per line."""
        return "\n".join(f"{name:<{self.name_width}} {cell_text(value):>12}" for name, value in self._figures())

    def as_table(self) -> Table:
        return ["", "value"], [[name.strip(), value] for name, value in self._figures()]


@dataclass(repr=False)
class Written(Result):
    """The result of `export`, `convert`, `push` and `report`. path: the file or folder. about: its content, in one
    line.
    """

    title = "{0.path}: {0.about}"

    path: Path = field(metadata=UNSAVED)
    about: str = field(metadata=UNSAVED)


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


@dataclass(kw_only=True)
class Summary:
    """The entries of a result.json that say how good a model is, with inf where JSON has null.

    metric_name, metric_value: the figure by which models are compared; None if result.json has none of METRIC_NAMES and
    CLOZE_METRIC.
    perplexity: perplexity on the scored split; on valid for a training.
    train_perplexity: of a training, perplexity on train.
    cloze: results of the cloze questions.
    normalized: whether the scores sum to one, None if unknown.
    tied: whether a network's output vectors are its embeddings.
    result: all entries, as they are saved.
    """

    metric_name: str | None = None
    metric_value: float | None = None
    perplexity: float | None = None
    train_perplexity: float | None = None
    split: str = ""
    perplexity_per_word: float | None = None
    bits_per_character: float | None = None
    seconds: float | None = None
    parameters: int | None = None
    cloze: dict[str, float] = field(default_factory=dict)
    normalized: bool | None = True
    tied: bool | None = None
    dynamic: bool = False
    result: dict[str, Any] = field(default_factory=dict)


def read_summary(folder: Path, remedy: str) -> Summary:
    """Read the result.json of a folder. Raises UserError, ending with `remedy`, if it is damaged or missing."""
    saved = read_json(folder / "result.json", remedy, RESULT)
    known = {each.name: saved[each.name] for each in fields(Summary) if saved.get(each.name) is not None}
    known |= {"normalized": saved["normalized"]} if "normalized" in saved else {}
    cloze = {key: inf if value is None else value for key, value in known.pop("cloze", {}).items()}
    name = next((name for name in METRIC_NAMES if name in saved), None)
    if name is not None:
        known["perplexity"] = inf if saved[name] is None else float(saved[name])
    name = CLOZE_METRIC if cloze and (name is None or saved.get("metric") == CLOZE_METRIC) else name
    value = cloze.get("perplexity") if name == CLOZE_METRIC else known.get("perplexity")
    return Summary(**known | {"metric_name": name, "metric_value": value, "cloze": cloze, "result": saved})
