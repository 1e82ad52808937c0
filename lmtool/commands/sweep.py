"""What a sweep (`-m`) adds to its jobs: one that fails does not stop the others, and a table at the end."""

from __future__ import annotations

import csv
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lmtool.errors import UserError
from lmtool.files import read_json, write_json, written_whole
from lmtool.tables import Cell, text_table

METRICS = ("valid_perplexity", "perplexity")
STATUS = "job.json"
log = logging.getLogger(__name__)


class _Outcome:
    """How the sweep of this process ended; Hydra offers its callbacks no other way to say so."""

    code = 0


def forget() -> None:
    """Forget the sweep before this one: a process may run several command lines, as tests do."""
    _Outcome.code = 0


def exit_code() -> int:
    """0, or 2 where all jobs that failed did so by the user's mistake, or 1."""
    return _Outcome.code


def guarded(run: Callable[[Any], float | None], composed: DictConfig) -> float | None:
    """Run one job of a sweep and note how it ended in its folder; a failure counts as infinitely bad."""
    from lmtool.commands.surroundings import output_dir

    folder = output_dir()
    try:
        value = run(composed)
    except UserError as error:
        write_json(folder / STATUS, {"status": "failed", "error": str(error), "code": 2})
        log.error("lmtool: %s", error)
        return float("inf")
    except Exception as error:
        write_json(folder / STATUS, {"status": "failed", "error": repr(error), "code": 1})
        log.error("%s", traceback.format_exc())
        return float("inf")
    write_json(folder / STATUS, {"status": "done", "error": None, "code": 0})
    return value


class SweepTable(Callback):
    """Prints the table of a sweep's jobs when they have all ended, and keeps it as sweep.csv."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read what the jobs left in their folders, the best one first."""
        folder = Path(config.hydra.sweep.dir)
        header, rows, code = table_of(folder)
        _Outcome.code = code
        with written_whole(folder / "sweep.csv") as temporary, temporary.open("w", newline="") as handle:
            csv.writer(handle).writerows([header, *rows])
        print(f"\n{text_table(header, rows)}\n\nalso in {folder / 'sweep.csv'}")


def table_of(folder: Path) -> tuple[list[str], list[list[Cell]], int]:
    """The header and rows of a sweep's table, best metric first, and the exit code its jobs amount to.

    Columns: the job, each setting that varied, the metric, seconds, how the job ended.
    """
    jobs = sorted((path.parent for path in folder.glob(f"*/{STATUS}")), key=lambda path: (len(path.name), path))
    settings = {job: _overrides(job) for job in jobs}
    varied: list[str] = []
    for key in dict.fromkeys(key for values in settings.values() for key in values):
        if len({values.get(key) for values in settings.values()}) > 1:
            varied.append(key)
    rows: list[tuple[float, list[Cell]]] = []
    metric_name = "metric"
    codes: set[int] = set()
    for job in jobs:
        status = read_json(job / STATUS, "run the sweep again")
        codes.add(status["code"])
        result = read_json(job / "result.json", "run the sweep again") if status["status"] == "done" else {}
        name = next((name for name in METRICS if name in result), None)
        metric_name = name or metric_name
        value = result.get(name) if name else None
        cells: list[Cell] = [job.name, *(settings[job].get(key) for key in varied), value]
        cells += [result.get("seconds"), status["error"] or status["status"]]
        rows.append((float("inf") if value is None else float(value), cells))
    rows.sort(key=lambda row: row[0])
    header = ["job", *varied, metric_name, "seconds", "status"]
    return header, [cells for _, cells in rows], 1 if 1 in codes else max(codes, default=0)


def _overrides(job: Path) -> dict[str, str]:
    """The settings that the command line gave a job, as Hydra keeps them in its folder."""
    listed = OmegaConf.load(job / ".hydra" / "overrides.yaml")
    pairs = (str(item).split("=", 1) for item in listed if "=" in str(item))
    return {key.lstrip("+"): value for key, value in pairs}
