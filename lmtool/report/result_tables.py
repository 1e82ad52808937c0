"""Tables of results: of runs and evaluations, one for each split, and of the jobs of a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lmtool.plots.axes import MINUS
from lmtool.report.content import Table
from lmtool.report.reading import NORMALISED, Entry, Sweep
from lmtool.results import CONTEXTS
from lmtool.system.terminal import Cell


def number(value: float | None, digits: int) -> str | None:
    """A number with so many digits after the point, None as None."""
    if value is None:
        return None
    return f"{value:,.{digits}f}".replace("-", MINUS) if abs(value) < 1e9 else f"{value:.3g}"


def between(low: float, high: float) -> str:
    """The ends of an interval."""
    return f"{number(low, 2)} to {number(high, 2)}"


def tables_by_split(entries: Sequence[Entry], folded: str = "") -> list[Table]:
    """A table for each split of each data set, the lowest perplexity first. folded: what the entries are, for the lines
    that unfold the tables; empty for tables that are shown at once.
    """
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.data, entry.split), []).append(entry)
    return [_table(group, text_name(group[0]), folded) for group in groups.values()]


def text_name(entry: Entry) -> str:
    """The data set and the split of a perplexity: `ptb, valid`."""
    return ", ".join(filter(None, (entry.data, entry.split)))


def _table(entries: Sequence[Entry], text: str, folded: str) -> Table:
    columns: list[tuple[str, bool, Callable[[Entry], Cell]]] = [
        ("run", False, lambda e: e.name),
        ("model", False, lambda e: e.model or None),
        ("perplexity", True, lambda e: number(e.perplexity, 2)),
        ("contexts", False, lambda e: CONTEXTS.get(e.result.get("across_sentences"))),
        (
            "fitted or chosen on it",
            False,
            lambda e: ", ".join(e.run.fitted_on.get(e.split, [])) or None if e.run else None,
        ),
        ("95 % confidence interval", True, lambda e: e.interval and between(*e.interval)),
        ("bits per word", True, lambda e: number(e.bits, 3)),
        ("parameters or n\N{NON-BREAKING HYPHEN}grams", True, lambda e: e.parameters and f"{e.parameters:,}"),
        ("seconds", True, lambda e: number(e.seconds, 1)),
        ("cloze perplexity", True, lambda e: number((e.cloze or {}).get("perplexity"), 3)),
        ("cloze accuracy", True, lambda e: number((e.cloze or {}).get("accuracy"), 3)),
    ]
    columns = [column for column in columns if any(column[2](entry) is not None for entry in entries)]

    def rows(normalised: bool) -> list[list[Cell]]:
        chosen = [entry for entry in entries if entry.normalised is normalised]
        chosen.sort(key=lambda entry: math.inf if entry.perplexity is None else entry.perplexity)
        return [[of(entry) for _, _, of in columns] for entry in chosen]

    return Table(
        [name for name, _, _ in columns],
        rows(True),
        tuple(k for k, (_, right, _) in enumerate(columns) if right),
        title="" if folded else text,
        folded=f"{len(entries)} {folded}: {text}" if folded else "",
        apart=rows(False),
    )


def sweep_table(sweep: Sweep) -> Table:
    """The jobs of a sweep, in the order of its table, with the first line of each error."""
    first, last = len(sweep.keys) + 1, len(sweep.header) - 1  # the columns of numbers
    columns = [column for column, name in enumerate(sweep.header) if name != NORMALISED]
    header = [sweep.header[column] for column in columns]
    table = Table(header, [], tuple(range(first, len(header) - 1)), folded=f"The table of {len(sweep.rows)} jobs")
    for row in sweep.rows:
        cells: list[Cell] = []
        for column in columns:
            if first <= column < last:
                cells.append(_written(row[column], seconds=sweep.header[column] == "seconds"))
            else:
                cells.append(row[column].partition("\n")[0])
        (table.rows if sweep.is_comparable(row) else table.apart).append(cells)
    return table


def _written(cell: str, *, seconds: bool) -> str | None:
    value = float(cell) if cell else None
    return number(value, 1 if seconds else 2 if value is None or value >= 10 else 4)
