"""One job of a sweep, which records in job.json in its folder how it ended and is not run again once it is done."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmtool import session
from lmtool.config.request import Request, find_first_change
from lmtool.errors import UserError, first_line
from lmtool.results.base import read_summary
from lmtool.runs.run import Run
from lmtool.system import parallel
from lmtool.system.files import read_json, write_json
from lmtool.system.lock import folder_lock
from lmtool.system.schemas import JOB

STATUS = "job.json"
REFUSED = "job-refused.json"  # record of a job whose folder, with its job.json, belongs to another job
RESULTS = ("run.json", "result.json")
log = logging.getLogger(__name__)

Record = dict[str, Any]


def run_job(run: Callable[[Request, Path], float | None], request: Request, seeds: Sequence[object] = ()) -> float:
    """Run one job of a sweep and record in its folder how it ended; return its metric, infinite for a failure.

    run: runs a request in a folder and returns its metric. seeds: of a search, whose trial is a job of each seed, in a
    folder of the trial's; its metric is their mean. A job that is done, with its files intact, is not run again. An
    exception that is not an Exception, e.g. KeyboardInterrupt, propagates and leaves job.json at `running`.
    """
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    session.use_own_device(hydra.job.num)
    folder = Path(hydra.runtime.output_dir)
    if not seeds:
        return _run_unless_done(run, request, folder)
    trials = {folder / f"seed{seed}": request.updated(Request(request.verb, values={"seed": seed})) for seed in seeds}
    for each in trials:
        each.mkdir(exist_ok=True)
    return statistics.fmean(_run_unless_done(run, trial, each) for each, trial in trials.items())


def _run_unless_done(run: Callable[[Request, Path], float | None], request: Request, folder: Path) -> float:
    request_record: Record = {"request": request.without("options").as_json()}
    try:
        # A job may still be running if the process that started it was killed and the sweep is restarted.
        with folder_lock(folder, ".job.lock"):
            before = read_record(folder)
            _require_same_job(folder, before, request)
            record = repair_record(folder, before) or _run_and_record(run, request, folder, request_record)
    except UserError as error:
        record = request_record | _failure_record(str(error), 2)
        _try_to_write(folder / REFUSED, record)
        log.error("lmtool: %s", error)
    value = record["value"]
    return float("inf") if value is None else float(value)


def claim_request(request: Request, sweep: Path, number: int) -> bool:
    """Claim the request for this job; False if an equal job has claimed it."""
    name = hashlib.sha256(json.dumps(request.as_json(), sort_keys=True).encode()).hexdigest()[:32]
    path = sweep / ".jobs" / name
    path.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError), path.open("x") as file:
        file.write(str(number))
    # Empty where a killed job left it: rather two equal jobs at once than none.
    return path.read_text() in ("", str(number))


def _run_and_record(
    run: Callable[[Request, Path], float | None], request: Request, folder: Path, request_record: Record
) -> Record:
    for name in RESULTS:  # files of an earlier, failed attempt
        (folder / name).unlink(missing_ok=True)
    start = time.perf_counter()
    try:
        write_json(folder / STATUS, request_record | {"status": "running"})
        value = run(request, folder)
        record = request_record | {"status": "done", "value": value, "error": None, "code": 0}
        if value is None or not math.isfinite(value):
            record["value"] = None
        record["made"] = [name for name in RESULTS if (folder / name).exists()]
        write_json(folder / STATUS, record | _resources_used(start))
        return record
    except UserError as error:
        record = request_record | _failure_record(str(error), 2)
        log.error("lmtool: %s", error)
    except Exception as error:
        reason = f"{first_line(error)} ({type(error).__name__}): a fault of lmtool or of a custom option"
        record = request_record | _failure_record(f"{reason}; its traceback is in the job's log", 1)
        log.error("%s", traceback.format_exc())
    _try_to_write(folder / STATUS, record | _resources_used(start))
    return record


def _resources_used(start: float) -> Record:
    devices = os.environ.get(session.DEVICES_VAR)
    return {"seconds": round(time.perf_counter() - start, 3), "threads": parallel.threads(), "devices": devices}


def _failure_record(error: str, code: int) -> Record:
    return {"status": "failed", "value": None, "error": error, "code": code}


def _try_to_write(path: Path, record: Record) -> None:
    with suppress(UserError):  # a full disk: a job that could not be recorded counts as cut off
        write_json(path, record)


def _require_same_job(folder: Path, before: Record | None, request: Request) -> None:
    if before is None:
        return
    earlier = Request.from_json(before["request"])
    if earlier.verb != request.verb or find_first_change(earlier.settings, request.settings, {"options"}) is not None:
        raise UserError(f"{folder} holds another job ({' '.join(earlier.words())}): choose another out=")


def job_folders(sweep: Path) -> Iterator[Path]:
    """Yield the folders of a sweep's jobs, ordered by job number."""
    names = {path.parent for name in (STATUS, REFUSED) for path in sweep.rglob(name)}
    yield from sorted(names, key=lambda path: (len(path.name), path))


def has_begun(folder: Path) -> bool:
    """Return whether a job got further than a mistake in its settings, by its record and the files in its folder."""
    with suppress(UserError):  # a damaged record
        if (read_record(folder) or {"code": 2}).get("code") == 2:
            return any(not path.name.startswith((".", "job")) and path.suffix != ".log" for path in folder.iterdir())
    return True


def read_record(folder: Path, name: str = STATUS) -> Record | None:
    """Read job.json, or return None if it does not exist. Raises UserError if it is damaged."""
    if not (folder / name).exists():
        return None
    record: Record = read_json(folder / name, f"remove {folder} and start the sweep again", JOB)
    return record


def repair_record(folder: Path, record: Record | None) -> Record | None:
    """Return the record of a finished job; write it if the job was killed before. None: the job is not finished."""
    finished = _finished_record(folder, record)
    if finished is not None and finished != record:
        _try_to_write(folder / STATUS, finished)
    return finished


def _finished_record(folder: Path, record: Record | None) -> Record | None:
    """Return the record of a finished job whose files are readable, also if it was killed before the record."""
    if record is None or record["status"] not in ("done", "running"):
        return None
    contents: dict[str, Any] = {}
    for name in record.get("made", RESULTS):
        try:
            contents[name] = read_summary(folder, "") if name == "result.json" else Run.open(folder)
        except UserError:
            return None
    if "result.json" not in contents:  # a job without a result to check
        return None
    if record["status"] == "running":
        value = contents["result.json"].metric_value
        return record | {"status": "done", "value": value, "error": None, "code": 0, "made": list(RESULTS)}
    return record
