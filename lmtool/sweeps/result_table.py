"""The tables of a sweep: its jobs, and, if jobs differ only in the seed, their mean and standard deviation.

Models whose scores do not sum to one come last, below a note. Their rows have `no`, or `unknown`, in a column
`normalized`, which other tables do not have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lmtool.config.grammar import to_hydra_text
from lmtool.config.request import Request
from lmtool.config.rules import format_value
from lmtool.errors import UserError, escape_unprintable
from lmtool.results.base import CLOZE_METRIC, FULL_WINDOWS, METRIC_NAMES, Summary, read_summary
from lmtool.runs.run import BY_QUESTIONS, fitted_on
from lmtool.sweeps.job import REFUSED, job_folders, read_record
from lmtool.system.files import atomic_write
from lmtool.system.terminal import Cell, csv_text, markdown_table, text_table

SEED, SPLIT = "seed", "split"
CLOZE = ("perplexity", "accuracy", "local_perplexity", "local_accuracy")  # columns from result.json's cloze
NORMALIZED = "normalized"
NOTE = "scores that do not sum to one, or whose sum is unknown: not comparable"
Table = tuple[list[str], list[list[Cell]]]  # header and rows


@dataclass
class Row(Summary):
    """The outcome of a job. metric_value: None for a failed job. code: the exit code of its command. fitted: the parts
    of the model that were fitted or chosen on the cloze questions that it scored.
    """

    job: str
    settings: dict[str, Any] = field(default_factory=dict)
    status: str = "done"
    code: int = 0
    fitted: list[str] = field(default_factory=list)


def read_rows(sweep: Path, numbered: int = 0) -> list[Row]:
    """Read a sweep's jobs from their folders: lowest metric first within a split, failed jobs after them, models whose
    scores do not sum to one last.

    numbered: the number of jobs whose folders are numbers from 0; one without a folder has not begun.
    """
    rows = [row for folder in job_folders(sweep) for row in _read_job(folder, str(folder.relative_to(sweep)))]
    missing = (str(number) for number in range(numbered) if not (sweep / str(number)).exists())
    rows += [Row(job, status="not begun", code=1) for job in missing]
    splits = list(dict.fromkeys(row.split for row in rows))

    def rank(row: Row) -> tuple[bool, bool, int, float]:
        return not row.normalized, row.metric_value is None, splits.index(row.split), row.metric_value or 0.0

    return sorted(rows, key=rank)


def as_typed(rows: Sequence[Row]) -> list[Row]:
    """Return jobs with their settings as texts, as they are written on the command line."""
    return [replace(row, settings={key: format_value(row.settings[key]) for key in row.settings}) for row in rows]


def _read_job(folder: Path, job: str) -> list[Row]:
    rows = []
    try:
        record, refused = read_record(folder), read_record(folder, REFUSED)
        if refused is not None:
            rows.append(_make_row(folder, job, refused))
        # A refused job may be still running in another process, or a second job in the folder of another job.
        if record is not None and (refused is None or _record_settings(record) != _record_settings(refused)):
            rows.append(_make_row(folder, job, record))
    except UserError as error:
        rows.append(Row(job, status=str(error), code=1))
    return rows


def _record_settings(record: dict[str, Any]) -> dict[str, Any]:
    return Request.from_json(record["request"]).settings


def _make_row(folder: Path, job: str, record: dict[str, Any]) -> Row:
    values, seconds = _record_settings(record), record.get("seconds")
    settings = {key: to_hydra_text(value) if isinstance(value, list | dict) else value for key, value in values.items()}
    if record["status"] == "running":
        return Row(job, settings, status="cut off", code=1)
    if record["status"] != "done":
        error, code = record.get("error") or "failed", record.get("code", 1)
        return Row(job, settings, seconds=seconds, status=error, code=code)
    summary = Summary()
    if "result.json" in record.get("made", []):
        summary = read_summary(folder, "start the sweep again")
    summary.seconds = seconds if summary.seconds is None else summary.seconds
    summary.metric_value = summary.metric_value if summary.metric_name else record.get("value")
    split = (summary.split or "valid").removesuffix(FULL_WINDOWS)
    fits = fitted_on(Path(summary.result.get("run", folder)), split, "") if summary.cloze else ()
    fitted = [part.removesuffix(BY_QUESTIONS) for part in fits if part.endswith(BY_QUESTIONS)]
    return Row(job, settings, **vars(summary), fitted=fitted)


def perplexities_of(row: Row) -> dict[str, float]:
    """Return the perplexities that a job reports: on `train`, on `valid` or another split it scored, and `cloze`."""
    known = {"train": row.train_perplexity, row.split or "valid": row.perplexity, "cloze": row.cloze.get("perplexity")}
    return {name: value for name, value in known.items() if value is not None}


def exit_code(rows: list[Row]) -> int:
    """Return 0 if all jobs are done, 2 if all failed jobs failed by user errors, else 1."""
    codes = {row.code for row in rows}
    return 1 if 1 in codes else max(codes, default=0)


def jobs_table(rows: Sequence[Row], swept: Collection[str] = ()) -> Table:
    """Return one row per job: job, each setting that varies, split, metric, others, cloze results, seconds, status.

    swept: settings whose several values were tried, which are shown even if all jobs got the same one.
    """
    varied, metric = varied_settings(rows, swept), common_metric(rows)
    columns: dict[str, list[Cell]] = {"job": [row.job for row in rows]}
    columns |= {key: [row.settings.get(key) for row in rows] for key in varied}
    if "model.tied" not in varied and {row.tied for row in rows} >= {True, False}:
        columns["tied"] = [None if row.tied is None else _yes_or_no(row.tied) for row in rows]
        columns["parameters"] = [row.parameters for row in rows]
    if SPLIT not in varied and any(row.split for row in rows):
        columns[SPLIT] = [row.split or None for row in rows]
    columns[metric] = [row.metric_value if row.metric_name in (metric, None) else None for row in rows]
    for key in METRIC_NAMES if metric == CLOZE_METRIC else ():
        if any(key in row.result for row in rows):
            columns[key] = [row.perplexity if key in row.result else None for row in rows]
    for key in CLOZE:
        if f"cloze_{key}" != metric and any(key in row.cloze for row in rows):
            columns[f"cloze_{key}"] = [row.cloze.get(key) for row in rows]
    if any(row.fitted for row in rows):
        columns["fitted_on_cloze"] = [", ".join(row.fitted) or None for row in rows]
    if not all(row.normalized for row in rows):
        columns[NORMALIZED] = [_yes_or_no(row.normalized) for row in rows]
    columns |= {"seconds": [row.seconds for row in rows], "status": [row.status for row in rows]}
    return list(columns), [list(line) for line in zip(*columns.values(), strict=True)]


def seeds_table(rows: list[Row]) -> Table | None:
    """Return count, mean and standard deviation (n - 1) of the metric over seeds, best first, if there are several."""
    apart = not all(row.normalized for row in rows)
    varied = [key for key in varied_settings(rows) if key != SEED]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if SEED in row.settings:
            groups.setdefault(tuple(row.settings.get(key) for key in varied), []).append(row)
    several = any(len({row.settings[SEED] for row in group}) > 1 for group in groups.values())
    if not several or all(row.metric_value is None for row in rows):
        return None
    ranked: list[tuple[tuple[bool, bool, float], list[Cell]]] = []
    for settings, group in groups.items():
        values = [row.metric_value for row in group if row.metric_value is not None]
        mean = statistics.fmean(values) if values else None
        spread = statistics.stdev(values) if len(values) > 1 and math.isfinite(sum(values)) else None
        normalized = next((sums for sums in (False, None) if sums in {row.normalized for row in group}), True)
        line: list[Cell] = [*settings, len(values), mean, spread, *[_yes_or_no(normalized)] * apart]
        ranked.append(((not normalized, mean is None, mean or 0.0), line))
    header = [*varied, "seeds", f"mean {common_metric(rows)}", "standard deviation", *[NORMALIZED] * apart]
    return header, [line for _, line in sorted(ranked, key=lambda pair: pair[0])]


def _yes_or_no(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[value]


def varied_settings(rows: Sequence[Row], swept: Collection[str] = ()) -> list[str]:
    """Return the settings in which jobs differ, and those of `swept` that a job has."""
    keys = dict.fromkeys(key for row in rows for key in row.settings)
    known = [row.settings for row in rows if row.settings]  # a damaged record has none
    return [key for key in keys if key in swept or len({settings.get(key) for settings in known}) > 1]


def common_metric(rows: Sequence[Row]) -> str:
    """Return the name of the metric that most commands report, if a job has one."""
    names = [row.metric_name for row in rows if row.metric_name]
    return next((name for name in METRIC_NAMES if name in names), names[0] if names else "metric")


def write_tables(sweep: Path, command: str, tables: dict[str, Table | None]) -> list[Path]:
    """Write each table to NAME.csv, and all to sweep.md below the command; return the files."""
    files = []
    for name, table in tables.items():
        if table is None:
            (sweep / f"{name}.csv").unlink(missing_ok=True)  # file of an earlier start, with other jobs
            continue
        with atomic_write(sweep / f"{name}.csv") as temporary:
            temporary.write_text(csv_text([table[0], *table[1]]), encoding="utf-8", newline="")
        files.append(sweep / f"{name}.csv")
    pages = [f"    {escape_unprintable(command)}"]
    pages += [_format_markdown(table) for table in tables.values() if table is not None]
    with atomic_write(sweep / "sweep.md") as temporary:
        temporary.write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    return [*files, sweep / "sweep.md"]


def _count_comparable(table: Table) -> int:
    """Return how many rows precede those of models whose scores do not sum to one."""
    header, rows = table
    column = header.index(NORMALIZED) if NORMALIZED in header else None
    return len(rows) if column is None else sum(row[column] == "yes" for row in rows)


def _format_markdown(table: Table) -> str:
    header, rows = table
    count = _count_comparable(table)
    parts = [markdown_table(header, rows[:count])] if count else []
    if count < len(rows):
        parts += [NOTE.capitalize() + ":", markdown_table(header, rows[count:])]
    return "\n\n".join(parts)


def format_table(table: Table) -> str:
    """Format a table for a terminal, with each error's first line."""
    header, rows = table
    lines = text_table(
        header, [[cell.partition("\n")[0] if isinstance(cell, str) else cell for cell in row] for row in rows]
    ).splitlines()
    count = _count_comparable(table)
    if count < len(rows):
        lines.insert(2 + count, f"{NOTE}:")  # 2: the header and its underline
    return "\n".join(lines)
