"""One job of a sweep, which records in job.json in its folder how it ended and is not run again once it is done."""

from __future__ import annotations

import copy
import logging
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, flag_override

from lmtool import session
from lmtool.config.options import HOMES, kinds
from lmtool.config.overrides import key_of
from lmtool.config.types import option_types
from lmtool.errors import UserError, first_line
from lmtool.system import parallel
from lmtool.system.files import read_json, write_json
from lmtool.system.lock import folder_lock
from lmtool.system.schemas import JOB, RESULT, RUN

STATUS = "job.json"
REFUSED = "job-refused.json"  # record of a job whose folder, with its job.json, belongs to another job
REPEATED = "repeated"  # mark, among Hydra's choices, of a job that equals an earlier one and is not run
METRICS = ("valid_perplexity", "perplexity")
RESULTS = ("run.json", "result.json")
log = logging.getLogger(__name__)

Record = dict[str, Any]


def guarded(run: Callable[[Any], float | None], composed: DictConfig) -> float:
    """Run one job of a sweep and record in its folder how it ended; return its metric, infinite for a failure.

    A trial with a list of seeds is a job of each seed, in a folder of the trial's; its metric is their mean. A job that
    is done, with its files intact, is not run again. An exception that is not an Exception, e.g. KeyboardInterrupt,
    propagates and leaves job.json at `running`.
    """
    from hydra.core.hydra_config import HydraConfig

    settings = HydraConfig.get()
    if isinstance(composed.get("seed"), ListConfig):
        return statistics.fmean(guarded(run, job) for job in _of_each_seed(composed))
    if REPEATED in settings.runtime.choices:
        log.info("not run: without the settings that its options lack it is an earlier job")
        return math.inf
    session.use_own_device(settings.job.num)
    folder = Path(settings.runtime.output_dir)
    about: Record = {
        "verb": settings.job.config_name,
        "overrides": [word for word in settings.overrides.task if key_of(word) != "options"],
    }
    try:
        # A job may still be running if the process that started it was killed and the sweep is restarted.
        with folder_lock(folder, ".job.lock"):
            before = read_record(folder)
            _require_same(folder, before, about)
            done = finished(folder, before)
            if done is not None and done["overrides"] != about["overrides"]:  # settings have been renamed since
                _note(folder / STATUS, done | about)
            record = done or _run(run, composed, folder, about)
    except UserError as error:
        record = about | _failure(str(error), 2)
        _note(folder / REFUSED, record)
        log.error("lmtool: %s", error)
    value = record["value"]
    return float("inf") if value is None else float(value)


def _of_each_seed(composed: DictConfig) -> Iterator[DictConfig]:
    """Yield the configuration of a trial with each of its seeds, as Hydra's current job."""
    from hydra.core.hydra_config import HydraConfig

    hydra: Any = HydraConfig.instance()
    trial = hydra.cfg
    try:
        for seed in composed.seed:
            hydra.cfg, job = copy.deepcopy(trial), copy.deepcopy(composed)
            with flag_override(hydra.cfg.hydra, "readonly", False):
                hydra.cfg.hydra.runtime.output_dir = f"{trial.hydra.runtime.output_dir}/seed{seed}"
                words = [f"seed={seed}" if key_of(word) == "seed" else word for word in trial.hydra.overrides.task]
                hydra.cfg.hydra.overrides.task = words
            Path(hydra.cfg.hydra.runtime.output_dir).mkdir(exist_ok=True)
            job.seed = seed
            yield job
    finally:
        hydra.cfg = trial


def _run(run: Callable[[Any], float | None], composed: DictConfig, folder: Path, about: Record) -> Record:
    for name in RESULTS:  # files of an earlier, failed attempt
        (folder / name).unlink(missing_ok=True)
    start = time.perf_counter()
    try:
        write_json(folder / STATUS, about | {"status": "running"})
        value = run(composed)
        record = about | {"status": "done", "value": value, "error": None, "code": 0}
        if value is None or not math.isfinite(value):
            record["value"] = None
        record["made"] = [name for name in RESULTS if (folder / name).exists()]
        write_json(folder / STATUS, record | _spent(start))
        return record
    except UserError as error:
        record = about | _failure(str(error), 2)
        log.error("lmtool: %s", error)
    except Exception as error:
        reason = f"{first_line(error)} ({type(error).__name__}): a fault of lmtool or of a custom option"
        record = about | _failure(f"{reason}; its traceback is in the job's log", 1)
        log.error("%s", traceback.format_exc())
    _note(folder / STATUS, record | _spent(start))
    return record


def _spent(start: float) -> Record:
    """Return a job's time, threads and GPUs."""
    devices = os.environ.get(session.DEVICES_VAR)
    return {"seconds": round(time.perf_counter() - start, 3), "threads": parallel.threads(), "devices": devices}


def _failure(error: str, code: int) -> Record:
    return {"status": "failed", "value": None, "error": error, "code": code}


def _note(path: Path, record: Record) -> None:
    with suppress(UserError):  # a full disk: a job that could not be recorded counts as cut off
        write_json(path, record)


def _require_same(folder: Path, before: Record | None, about: Record) -> None:
    if before is None:
        return
    words = [str(word) for word in before.get("overrides") or []]
    if before.get("verb") != about["verb"] or not same_words(about["verb"], words, about["overrides"]):
        overrides = " ".join(words or ["of another version of lmtool"])
        raise UserError(f"{folder} holds another job ({overrides}): choose another hydra.sweep.dir")


def same_words(verb: str, before: list[str], now: list[str]) -> bool:
    """Return whether the overrides of two jobs or sweeps are equal, except that settings were renamed between them."""
    return before == now or list(map(_renamed, before)) == list(map(_renamed, now))


def _renamed(word: str) -> str:
    """Return an override with the current name of its setting in any option of the group, to be compared alone."""
    key = key_of(word)
    group, _, name = key.partition(".")
    types = [option_types(group, kind) for kind in (kinds(group) if group in HOMES else [group])]
    for settings in types if name else []:
        for current, type_ in settings.items():
            if type_.rule is not None and type_.rule.was == name:
                return word.replace(key, f"{group}.{current}", 1)
    return word


def folders(sweep: Path) -> Iterator[Path]:
    """Yield the folders of a sweep's jobs, ordered by job number."""
    names = {path.parent for name in (STATUS, REFUSED) for path in sweep.rglob(name)}
    yield from sorted(names, key=lambda path: (len(path.name), path))


def began(folder: Path) -> bool:
    """Return whether a job got further than a mistake in its settings: its record says anything else, or its command
    has written a file besides the records and logs that each job has.
    """
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


def finished(folder: Path, record: Record | None) -> Record | None:
    """Return the record of a finished job whose files are readable, or None if the job must be run.

    A job killed between writing its last file and its record is finished too.
    """
    if record is None or record["status"] not in ("done", "running"):
        return None
    read: dict[str, Any] = {}
    for name in record.get("made", RESULTS):
        try:
            read[name] = read_json(folder / name, "", RESULT if name == "result.json" else RUN)
        except UserError:
            return None
    if "result.json" not in read:  # a job without a result to check
        return None
    if record["status"] == "running":
        value = next((read["result.json"].get(name) for name in METRICS if name in read["result.json"]), None)
        record = record | {"status": "done", "value": value, "error": None, "code": 0, "made": list(RESULTS)}
        _note(folder / STATUS, record)
    return record
