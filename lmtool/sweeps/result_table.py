"""The tables of a sweep: its jobs, and, where jobs differ in the seed alone, mean and standard deviation."""

from __future__ import annotations

import csv
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmtool.errors import UserError
from lmtool.sweeps.job import METRICS, REFUSED, folders, read_record
from lmtool.system.files import read_json, written_whole
from lmtool.system.tables import Cell, markdown_table, text_table

SEED = "seed"
Table = tuple[list[str], list[list[Cell]]]  # header and rows


@dataclass(frozen=True, slots=True)
class Row:
    """How a job ended. code: the exit code that its command would have."""

    job: str
    settings: dict[str, str]
    metric: str | None
    value: float | None
    seconds: float | None
    status: str
    code: int


def rows_of(sweep: Path) -> list[Row]:
    """The jobs of a sweep, read from their folders: lowest metric first, jobs without one last."""
    rows = [row for folder in folders(sweep) for row in _rows_in(folder, str(folder.relative_to(sweep)))]
    return sorted(rows, key=lambda row: float("inf") if row.value is None else row.value)


def _rows_in(folder: Path, job: str) -> list[Row]:
    rows = []
    try:
        record, refused = read_record(folder), None
        if (folder / REFUSED).exists():
            refused = read_json(folder / REFUSED, "start the sweep again")
            rows.append(_row(folder, job, refused))
        # A refused job may be one that another process still runs, or a second one in the folder of another job.
        if record is not None and (refused is None or record.get("overrides") != refused["overrides"]):
            rows.append(_row(folder, job, record))
    except UserError as error:
        rows.append(Row(job, {}, None, None, None, str(error), 1))
    return rows


def _row(folder: Path, job: str, record: dict[str, Any]) -> Row:
    pairs = (str(item).split("=", 1) for item in record.get("overrides", []) if "=" in str(item))
    settings = {key.lstrip("+"): value for key, value in pairs}
    if record["status"] == "running":
        return Row(job, settings, None, None, None, "cut off", 1)
    if record["status"] != "done":
        return Row(job, settings, None, None, record.get("seconds"), str(record["error"]), int(record["code"]))
    has_result = "result.json" in record.get("made", [])
    result = read_json(folder / "result.json", "start the sweep again") if has_result else {}
    metric = next((name for name in METRICS if name in result), None)
    value = result.get(metric) if metric else record.get("value")
    return Row(job, settings, metric, value, result.get("seconds", record.get("seconds")), "done", 0)


def exit_code(rows: list[Row]) -> int:
    """0 if all jobs are done, 2 if those that failed did so by mistakes of the user, else 1."""
    codes = {row.code for row in rows}
    return 1 if 1 in codes else max(codes, default=0)


def jobs_table(rows: list[Row]) -> Table:
    """One row per job: the job, each setting that varies, the metric, seconds, status."""
    varied = _varied(rows)
    header = ["job", *varied, _metric(rows), "seconds", "status"]
    return header, [
        [row.job, *(row.settings.get(key) for key in varied), row.value, row.seconds, row.status] for row in rows
    ]


def seeds_table(rows: list[Row]) -> Table | None:
    """Number of seeds, mean and standard deviation (n - 1) of the metric, best mean first; None where no rows differ in
    the seed alone. Jobs without a metric do not count.
    """
    varied = [key for key in _varied(rows) if key != SEED]
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for row in rows:
        if SEED in row.settings:
            groups.setdefault(tuple(row.settings.get(key) for key in varied), []).append(row)
    several = any(len({row.settings[SEED] for row in group}) > 1 for group in groups.values())
    if not several or all(row.value is None for row in rows):
        return None
    lines: list[list[Cell]] = []
    for settings, group in groups.items():
        values = [row.value for row in group if row.value is not None]
        mean = statistics.fmean(values) if values else None
        spread = statistics.stdev(values) if len(values) > 1 else None
        lines.append([*settings, len(values), mean, spread])
    lines.sort(key=lambda line: float("inf") if line[-2] is None else float(line[-2]))
    return [*varied, "seeds", f"mean {_metric(rows)}", "standard deviation"], lines


def _varied(rows: list[Row]) -> list[str]:
    keys = dict.fromkeys(key for row in rows for key in row.settings)
    return [key for key in keys if len({row.settings.get(key) for row in rows}) > 1]


def _metric(rows: list[Row]) -> str:
    return next((row.metric for row in rows if row.metric), "metric")


def write(sweep: Path, command: str, tables: dict[str, Table | None]) -> list[Path]:
    """Write each table as NAME.csv, and all as sweep.md under the command; returns the files."""
    written = []
    for name, table in tables.items():
        if table is None:
            (sweep / f"{name}.csv").unlink(missing_ok=True)  # of an earlier start, with other jobs
            continue
        with written_whole(sweep / f"{name}.csv") as temporary, temporary.open("w", newline="") as handle:
            csv.writer(handle).writerows([table[0], *table[1]])
        written.append(sweep / f"{name}.csv")
    pages = [f"    {command}", *(markdown_table(*table) for table in tables.values() if table is not None)]
    with written_whole(sweep / "sweep.md") as temporary:
        temporary.write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    return [*written, sweep / "sweep.md"]


def shown(table: Table) -> str:
    """A table for a terminal, with the first line of each error."""
    header, rows = table
    return text_table(
        header, [[cell.partition("\n")[0] if isinstance(cell, str) else cell for cell in row] for row in rows]
    )
