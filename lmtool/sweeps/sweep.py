"""A sweep (`-m`) from its start to its tables.

Hydra composes the jobs and passes them to a launcher; job.py runs each job. This module runs in the process that
starts them.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lmtool import session
from lmtool.config.overrides import key_of, swept_values, value_of
from lmtool.config.rules import require, require_folder
from lmtool.config.settings import config_dir_of
from lmtool.errors import UserError, first_line, for_terminal
from lmtool.sweeps import launcher_processes, restart, result_table
from lmtool.sweeps.job import REFUSED, STATUS, began, finished, folders, read_record
from lmtool.system import parallel
from lmtool.system.lock import folder_lock

# Settings of sweepers and launchers that their plugins do not check.
NUMBERS = ("sweeper.n_trials", "sweeper.n_jobs", "sweeper.max_batch_size", "launcher.n_jobs", "launcher.timeout_min")


class Refused(SystemExit):
    """A sweep that must not start, with the reason.

    It is not an Exception, because Hydra turns an Exception of a callback into a warning.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Sweep:
    """The sweep of one command line; `folder` stays None if the line starts a single run."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.verb = self.command = ""
        self.swept: dict[str, int | None] = {}
        self.launcher: Mapping[str, Any] = {}
        self.numbered = 0  # jobs of a grid whose folders have their numbers as names
        self.finished_before = 0  # jobs that are not run again
        self.until_end = ExitStack()

    def begin(self, config: DictConfig) -> None:
        """Lock the folder for this process. Raises UserError if another process or another sweep uses it."""
        folder, self.swept = Path(config.hydra.sweep.dir), _swept(config)
        self.launcher = config.hydra.launcher
        launcher_processes.require_launcher(self.launcher)
        require_folder("hydra.sweep.dir", folder)
        for name in NUMBERS:
            value = OmegaConf.select(config.hydra, name)
            above = value is None or value > 0 or (name == "launcher.n_jobs" and value < 0)  # from the number of cores
            require(above, f"hydra.{name}", value, "1 or more")
        self.until_end.enter_context(folder_lock(folder))
        if not any(map(began, folders(folder))):  # the sweep before had only mistakes in its settings
            for job in folders(folder):
                (job / STATUS).unlink(missing_ok=True)
        restart.require_same(folder, config)
        restart.require_storage(config)
        for job in folders(folder):
            (job / REFUSED).unlink(missing_ok=True)
            with suppress(UserError):  # which the job will report
                self.finished_before += finished(job, read_record(job)) is not None
        restart.keep(folder, config)
        if "seed" in self.swept and not restart.is_grid(config):  # each trial has all of them
            words = {word: swept_values(word) for word in config.hydra.overrides.task}
            config.hydra.overrides.task = [
                f"seed=[{','.join(values)}]" if values and key_of(word) == "seed" else word
                for word, values in words.items()
            ]
        subdir = OmegaConf.to_yaml(config.hydra.sweep).partition("subdir: ")[2]
        if restart.is_grid(config) and subdir.startswith("${hydra.job.num}\n"):
            self.numbered = math.prod(number or 1 for number in self.swept.values())
        count = session.jobs_at_once(self.launcher, _number_of_jobs(config, self.swept), parallel.cores())
        self.until_end.enter_context(session.announced(count))
        self.until_end.push(
            lambda kind, *_: launcher_processes.end_processes(self.launcher, interrupted=kind is not None)
        )
        self.folder, self.verb, self.command = folder, config.hydra.job.config_name, restart.command(config)

    def end(self, *, quiet: bool = False) -> int:
        """Print the tables and write them; return the exit code of the sweep. quiet: whether to print nothing."""
        if self.folder is None:
            return 0
        rows = result_table.rows_of(self.folder, self.numbered)
        if not rows:  # no job got as far as its record
            return 1
        jobs, seeds = result_table.jobs_table(rows, self.swept), result_table.seeds_table(rows)
        written = result_table.write(self.folder, self.command, {"sweep": jobs, "sweep-seeds": seeds})
        if quiet:
            return result_table.exit_code(rows)
        for table in filter(None, (jobs, seeds)):
            print(for_terminal(f"\n{result_table.shown(table)}"))
        if result_table.some_left_out(rows):
            print("note: - is a setting that the job's options do not have; it was left out there")
        if len(jobs[1]) > 1 and "valid_perplexity" in jobs[0]:
            print("note: valid ranks the jobs and is thus used up for the best one: lmtool eval split=test scores it")
        if any(name == "data" or name.startswith("data.") for name in jobs[0]):
            print("note: the data vary: perplexities are per token, and compare only for one text in the same tokens")
        if same := self.finished_before:
            print(f"\n{same} of these {'was' if same == 1 else 'were'} finished before and not run again")
        print(for_terminal(f"\nalso in {', '.join(map(str, written))}"))
        return result_table.exit_code(rows)

    def cut_off(self, error: Exception) -> bool:
        """Report a failure of the launcher, such as a killed process of a job, and print the tables once the other
        jobs have ended.

        Returns False if the error is not a launcher's.
        """
        if self.folder is None or type(error).__module__.partition(".")[0] not in ("joblib", "submitit", "concurrent"):
            return False
        launcher_processes.await_jobs(self.launcher)
        self.end()
        print(
            f"lmtool: a job's process ended before its job ({type(error).__name__}: {first_line(error)})",
            file=sys.stderr,
        )
        print(f"resume it with: {self.again()}", file=sys.stderr)
        return True

    def again(self) -> str:
        """Return the command that resumes this sweep."""
        return f"lmtool {self.verb} -m resume={shlex.quote(str(self.folder))}"


_current: ContextVar[Sweep] = ContextVar("sweep")


@contextmanager
def watched() -> Iterator[Sweep]:
    """Yield the sweep of the command line that runs in the block; unlock its folder when the block ends."""
    sweep = Sweep()
    token = _current.set(sweep)
    try:
        with sweep.until_end:
            yield sweep
    except KeyboardInterrupt:
        if sweep.folder is not None:
            print(f"resume it with: {sweep.again()}", file=sys.stderr)
        raise
    finally:
        _current.reset(token)


class Start(Callback):
    """Hydra's callback for the start of a sweep (conf/common.yaml names it)."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Begin the sweep, or refuse it."""
        try:
            _current.get().begin(config)
        except Exception as error:
            raise Refused(error) from error


def _swept(config: DictConfig) -> dict[str, int | None]:
    """Return the number of values of each setting that a sweep tries; None for an interval.

    Raises UserError for values that its sweeper cannot try.
    """
    swept: dict[str, int | None] = {}
    folder = config_dir_of(config.hydra)
    for word in restart.all_overrides(config):
        parsed, key = OverridesParser.create().parse_override(word), key_of(word)
        if not parsed.is_sweep_override():
            continue
        if parsed.is_interval_sweep() and restart.is_grid(config):
            raise UserError(
                f"{word}: an interval is for a search: add hydra/sweeper=optuna, or write values, as {key}=1,2 or "
                f"{key}=range(1,4)"
            )
        values = swept_values(word, None if folder is None else Path(folder))
        if values == [] or (isinstance(parsed.value(), Glob) and not restart.is_grid(config)):
            raise UserError(f"{word}: nothing to try: glob() matches options of a group, in a sweep without optuna")
        swept[key] = None if values is None else len(values)
    for word in restart.all_overrides(config) if any(number != 1 for number in swept.values()) else []:
        key, file = key_of(word), value_of(word)
        if key in ("to", "filter") and key not in swept and file not in ("-", ""):
            raise UserError(f"{word}: all jobs of the sweep would write this file; run the command once for each")
    return swept


def _number_of_jobs(config: DictConfig, swept: dict[str, int | None]) -> int | None:
    """Return how many jobs a launcher gets at a time; None if the sweeper's settings do not say."""
    sweeper = config.hydra.sweeper
    if "n_trials" in sweeper and "n_jobs" in sweeper:
        return min(int(sweeper.n_trials), int(sweeper.n_jobs))
    if not restart.is_grid(config):
        return None
    count = math.prod(number or 1 for number in swept.values())
    return min(count, int(sweeper.max_batch_size or count))
