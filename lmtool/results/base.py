"""Results of commands. A result is a dataclass. A field that is printed declares its heading, unit and digits once, by
`figure`; the printed text, Markdown, LaTeX, HTML for notebooks, pandas and result.json derive from the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any

from lmtool.system.files import read_json
from lmtool.system.schemas import RESULT
from lmtool.system.tables import MERGED as MERGED
from lmtool.system.tables import UNSAVED as UNSAVED
from lmtool.system.tables import Figure as Figure
from lmtool.system.tables import Result as Result
from lmtool.system.tables import Table as Table
from lmtool.system.tables import TableResult as TableResult
from lmtool.system.tables import as_json as as_json
from lmtool.system.tables import figure as figure
from lmtool.system.tables import figures_of as figures_of
from lmtool.system.tables import frame as frame
from lmtool.system.tables import result_from_json as result_from_json
from lmtool.system.tables import table_of as table_of
from lmtool.system.terminal import Cell, cell_text

NOT_COMPARABLE = "do not compare this perplexity with others"
SUM_UNKNOWN = "sum unknown: perplexities and weights mean something only if its probabilities sum to one"
CONTEXTS: dict[bool | None, str] = {True: "across sentences", False: "of one line"}  # if the model may cross sentences
METRIC_NAMES = ("valid_perplexity", "perplexity")
CLOZE_METRIC = "cloze_perplexity"  # the metric if no text is scored


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


def sizes_text(sizes: Sequence[int]) -> str:
    """Return the number of n-grams of each order as text, one line per order."""
    return "\n".join(["order  n-grams", *(f"{order:5}  {count:,}" for order, count in enumerate(sizes, start=1))])


@dataclass(kw_only=True)
class Summary:
    """The entries of a result.json that say how good a model is, with inf where JSON has null.

    metric_name, metric_value: the figure by which models are compared; None if result.json has none of METRIC_NAMES and
    CLOZE_METRIC.
    perplexity: perplexity on the scored split; on valid for a training.
    cloze: results of the cloze questions.
    normalized: whether the scores sum to one, None if unknown.
    tied: whether a network's output vectors are its embeddings.
    result: all entries, as they are saved.
    """

    metric_name: str | None = None
    metric_value: float | None = None
    perplexity: float | None = None
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
    name = next((name for name in METRIC_NAMES if name in saved), CLOZE_METRIC if cloze else None)
    if name in saved:
        known["perplexity"] = inf if saved[name] is None else float(saved[name])
    value = cloze.get("perplexity") if name == CLOZE_METRIC else known.get("perplexity")
    return Summary(**known | {"metric_name": name, "metric_value": value, "cloze": cloze, "result": saved})
