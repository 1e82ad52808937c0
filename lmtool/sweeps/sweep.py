"""A sweep (`-m`) from its start to its tables.

Hydra composes the jobs and passes them to a launcher; job.py runs each job. This module runs in the process that
starts them.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from hydra.core.override_parser.types import Glob
from omegaconf import DictConfig, OmegaConf

from lmtool import session
from lmtool.config.grammar import parse_value, sweep_values
from lmtool.config.request import Request, find_first_change
from lmtool.config.rules import require
from lmtool.errors import UserError, escape_controls, first_line
from lmtool.results.base import CLOZE_METRIC
from lmtool.sweeps import launchers, result_table
from lmtool.sweeps.job import REFUSED, STATUS, has_begun, job_folders, read_record, repair_record
from lmtool.system import parallel
from lmtool.system.files import read_json, write_json
from lmtool.system.lock import folder_lock
from lmtool.system.schemas import ASKED

SWEEP_FILE = "sweep.json"
# Settings of Hydra that determine the jobs of a sweep, and those of them that do not.
DETERMINING = ("hydra/sweeper", "hydra.sweeper", "hydra.sweep.subdir")
NEUTRAL = ("hydra.sweeper.n_trials", "hydra.sweeper.max_failure_rate")
# Settings of sweepers and launchers that their plugins do not check.
NUMBERS = ("sweeper.n_trials", "sweeper.n_jobs", "sweeper.max_batch_size", "launcher.n_jobs", "launcher.timeout_min")


class Sweep:
    """The sweep of one command line.

    request, folder, launcher: its request, its folder and its launcher's settings.
    swept: the number of values of each setting that it tries; None for an interval.
    numbered: the number of jobs whose folders are numbers from 0.
    finished_before: the number of jobs that are not run again.
    """

    def __init__(self, request: Request, hydra: DictConfig) -> None:
        """Count what is tried. hydra: its composed settings. Raises UserError for values that cannot be tried."""
        self.request, self.folder, self.launcher = request, Path(hydra.sweep.dir), hydra.launcher
        self.swept = _count_values(request, hydra)
        subdir = OmegaConf.to_container(hydra.sweep, resolve=False)["subdir"]  # type: ignore[call-overload,index]
        by_number = is_grid(hydra) and str(subdir) == "${hydra.job.num}"
        self.numbered = math.prod(number or 1 for number in self.swept.values()) if by_number else 0
        self.finished_before = 0

    def finish(self, *, quiet: bool = False) -> int:
        """Print the tables and write them; return the exit code of the sweep. quiet: whether to print nothing."""
        rows = result_table.as_typed(result_table.read_rows(self.folder, self.numbered))
        if not rows:  # no job got as far as its record
            if not quiet:
                print("no job began; see the messages above")
            return 1
        jobs, seeds = result_table.jobs_table(rows, self.swept), result_table.seeds_table(rows)
        files = result_table.write_tables(
            self.folder, format_command(self.request), {"sweep": jobs, "sweep-seeds": seeds}
        )
        if quiet:
            return result_table.exit_code(rows)
        for table in filter(None, (jobs, seeds)):
            print(escape_controls(f"\n{result_table.format_table(table)}"))
        if len({frozenset(row.settings) for row in rows if row.settings}) > 1:
            print("note: - is a setting that the job's options do not have; it was left out there")
        ranks = {"valid_perplexity": "valid ranks", CLOZE_METRIC: "the cloze questions rank"}
        if len(jobs[1]) > 1 and (by := ranks.get(result_table.common_metric(rows))):
            print(f"note: {by} the jobs, so the best perplexity is optimistic: lmtool eval split=test scores it")
        if any(name == "data" or name.startswith("data.") for name in jobs[0]):
            print("note: the data vary: perplexities are per token, and compare only for one text in the same tokens")
        if count := self.finished_before:
            print(f"\n{count} of these {'was' if count == 1 else 'were'} finished before and not run again")
        print(escape_controls(f"\nalso in {', '.join(map(str, files))}"))
        return result_table.exit_code(rows)

    def handle_launcher_failure(self, error: Exception, *, quiet: bool = False) -> bool:
        """Report a failure of the launcher once the other jobs have ended, with the tables unless `quiet`; False: it is
        another error.
        """
        if type(error).__module__.partition(".")[0] not in ("joblib", "submitit", "concurrent"):
            return False
        launchers.await_jobs(self.launcher)
        self.finish(quiet=quiet)
        print(
            f"lmtool: a job's process ended before its job ({type(error).__name__}: {first_line(error)})",
            file=sys.stderr,
        )
        print(f"resume it with: {self.resume_command()}", file=sys.stderr)
        return True

    def resume_command(self) -> str:
        return f"lmtool {self.request.verb} -m resume={shlex.quote(str(self.folder))}"


@contextmanager
def begin_sweep(request: Request, hydra: DictConfig) -> Iterator[Sweep]:
    """Check and begin the sweep that runs in the block, in its folder, which is locked.

    The jobs find in the environment how many run in parallel. The processes of the launcher end with the block.
    """
    sweep = Sweep(request, hydra)
    _require_launcher(hydra)
    if (sweep.folder / "run.json").exists():
        raise UserError(f"{sweep.folder} holds a trained model: choose another folder for the sweep, e.g. out=PATH")
    with folder_lock(sweep.folder):
        _prepare_folder(sweep, hydra)
        count = session.launcher_parallelism(sweep.launcher, _number_of_jobs(hydra, sweep.swept), parallel.cores())
        try:
            with session.export_job_count(count), ExitStack() as at_end:
                at_end.push(lambda kind, *_: launchers.end_processes(sweep.launcher, interrupted=kind is not None))
                yield sweep
        except KeyboardInterrupt:
            print(f"resume it with: {sweep.resume_command()}", file=sys.stderr)
            raise


def _require_launcher(hydra: DictConfig) -> None:
    """Raise UserError unless launcher and sweeper are installed and have valid settings."""
    launchers.require_plugins(hydra)
    launchers.require_launcher(hydra.launcher)
    for name in NUMBERS:
        value = OmegaConf.select(hydra, name)
        above = value is None or value > 0 or (name == "launcher.n_jobs" and value < 0)  # from the number of cores
        require(above, f"hydra.{name}", value, "1 or more")


def _prepare_folder(sweep: Sweep, hydra: DictConfig) -> None:
    """Remove records of mistakes, count the finished jobs and write the request.

    Raises UserError if the folder holds another sweep.
    """
    if not any(map(has_begun, job_folders(sweep.folder))):  # the sweep before had only mistakes in its settings
        for job in job_folders(sweep.folder):
            (job / STATUS).unlink(missing_ok=True)
    _require_same_sweep(sweep.folder, sweep.request, hydra)
    _require_storage(hydra)
    for job in job_folders(sweep.folder):
        (job / REFUSED).unlink(missing_ok=True)
        with suppress(UserError):  # which the job will report
            sweep.finished_before += repair_record(job, read_record(job)) is not None
    write_json(sweep.folder / SWEEP_FILE, sweep.request.as_json())


def _count_values(request: Request, hydra: DictConfig) -> dict[str, int | None]:
    """Return the number of values of each setting that a sweep tries; None for an interval."""
    counts: dict[str, int | None] = {}
    for key, text in request.settings.items():
        override = parse_value(str(text))
        if override is None or not override.is_sweep_override():
            continue
        if override.is_interval_sweep() and is_grid(hydra):
            raise UserError(
                f"{key}={text}: an interval is for a search: add hydra/sweeper=optuna, or write values, e.g. {key}=1,2 "
                f"or {key}=range(1,4)"
            )
        values = sweep_values(key, text, request.folders)
        if values == [] or (isinstance(override.value(), Glob) and not is_grid(hydra)):
            remedy = "glob() matches options of a group, in a sweep without optuna"
            raise UserError(f"{key}={text}: nothing to try: {remedy}")
        counts[key] = None if values is None else len(values)
    for key in ("to", "filter") if any(number != 1 for number in counts.values()) else ():
        text = str(request.values.get(key, ""))
        if key not in counts and text not in ("-", "", "null"):
            raise UserError(f"{key}={text}: all jobs of the sweep would write this file; run the command once for each")
    return counts


def _number_of_jobs(hydra: DictConfig, swept: dict[str, int | None]) -> int | None:
    """Return how many jobs a launcher gets at a time; None if the sweeper's settings do not say."""
    sweeper = hydra.sweeper
    if "n_trials" in sweeper and "n_jobs" in sweeper:
        return min(int(sweeper.n_trials), int(sweeper.n_jobs))
    if not is_grid(hydra):
        return None
    count = math.prod(number or 1 for number in swept.values())
    return min(count, int(sweeper.max_batch_size or count))


def read_sweep_request(verb: str, folder: Path) -> Request:
    """Return the request that started the sweep in a folder. Raises UserError if it holds no sweep of this verb."""
    if not (folder / SWEEP_FILE).is_file():
        raise UserError(f"{folder} holds no sweep (it has no {SWEEP_FILE}); for a single run leave out -m")
    request = _read_request(folder)
    if request.verb != verb:
        raise UserError(f"{folder} is a sweep of lmtool {request.verb}, not of lmtool {verb}")
    return request


def _read_request(folder: Path) -> Request:
    return Request.from_json(read_json(folder / SWEEP_FILE, "choose another out=", ASKED))


def _require_same_sweep(folder: Path, request: Request, hydra: DictConfig) -> None:
    """Raise UserError if the folder holds jobs of another sweep, or of a search that cannot be repeated."""
    if not any(job_folders(folder)) or not (folder / SWEEP_FILE).is_file():
        return
    before = _read_request(folder)
    if before.verb != request.verb or find_first_change(_job_settings(before), _job_settings(request)) is not None:
        raise UserError(
            f"{folder} holds another sweep ({format_command(before)}): choose another out=, or resume it: "
            f"lmtool {before.verb} -m resume={folder}"
        )
    sampler = hydra.sweeper.get("sampler")
    if sampler is not None and "seed" in sampler and sampler.seed is None and not hydra.sweeper.get("storage"):
        raise UserError(
            f"{folder} holds trials that cannot be repeated without hydra.sweeper.sampler.seed=N: choose another out="
        )


def _require_storage(hydra: DictConfig) -> None:
    """Raise UserError if a study is to be stored and the installed versions cannot store it."""
    if hydra.sweeper.get("storage") and int(version("sqlalchemy").split(".")[0]) > 1:
        raise UserError(
            f"hydra.sweeper.storage={hydra.sweeper.storage}: optuna {version('optuna')} stores studies with "
            "SQLAlchemy 1.4 only; without it, a sweep with hydra.sweeper.sampler.seed=N can be resumed"
        )


def _job_settings(request: Request) -> dict[str, object]:
    values = {key.lstrip("+"): value for key, value in (request.choices | request.values).items()}
    sweeper_values = {key: values[key] for key in values if key.startswith(DETERMINING) and key not in NEUTRAL}
    return {key: value for key, value in request.settings.items() if key != "options"} | sweeper_values


def format_command(request: Request) -> str:
    return " ".join(
        ["lmtool", request.verb, "-m", *(f"{key}={value}" for key, value in _job_settings(request).items())]
    )


def is_grid(hydra: DictConfig) -> bool:
    """Return whether a sweep runs every combination of values, and is not a search."""
    return "max_batch_size" in hydra.sweeper
