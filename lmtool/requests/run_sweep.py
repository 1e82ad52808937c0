"""Run the jobs of a sweep by Hydra's sweeper and launcher."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lmtool.config.composition import OPTIONAL, Composition, hydra_state, hydra_words, run_hydra_app
from lmtool.config.grammar import override_key, parse_value, quote_text, sweep_values, to_hydra_text
from lmtool.config.options import EXPERIMENT, folder_in_use
from lmtool.config.request import SWEEP_DIR, Request, is_run_control_key
from lmtool.config.rules import require, require_folder
from lmtool.errors import UserError
from lmtool.requests import mistakes
from lmtool.requests.allowed import find_trusted_choices, restricted_changes
from lmtool.requests.arguments import CommandLine
from lmtool.requests.compose import compose_jobs, compose_request, is_special
from lmtool.requests.run import resolve_hydra_by, run_composed_command, write_settings
from lmtool.requests.values import read_text
from lmtool.requests.words import add_sweep_parameters, parse_request
from lmtool.results import Result
from lmtool.session import on_terminal
from lmtool.sweeps import job, sweep


def run_sweep(request: Request, *, quiet: bool = False, progress: bool | None = None) -> int:
    """Run the jobs of a sweep by Hydra's sweeper and launcher, and return the exit code. quiet: whether to print
    nothing. progress: whether to show bars; None: on a terminal.
    """
    hydra_values = {key: value for key, value in request.values.items() if is_run_control_key(key)}
    first_job = replace(compose_jobs(request)[0].request, values=hydra_values | {"hydra.mode": "MULTIRUN"}, sweep=False)
    first, settings = compose_request(first_job)
    with hydra_state(), resolve_hydra_by(settings):
        hydra_settings = settings.hydra
        sweep_request = add_sweep_parameters(request, hydra_settings.sweeper.get("params") or {})
        hydra_settings.sweep.dir = str(hydra_settings.sweep.dir)  # with the time of now
        require_folder("out", hydra_settings.sweep.dir)
        lacking_keys, is_grid = _find_lacking_keys(sweep_request), sweep.is_grid(hydra_settings)
        optional_keys = _checked_keys(sweep_request) if request.is_untrusted else lacking_keys
        with sweep.begin_sweep(sweep_request, hydra_settings) as state:
            swept_seeds = None if is_grid else sweep_values("seed", str(sweep_request.values.get("seed", "")))
            jobs = _SweepJobs(
                sweep_request,
                optional_keys,
                seeds=[parse_value(seed).value() for seed in swept_seeds or []],
                folder_of_equals=Path(hydra_settings.sweep.dir) if lacking_keys and is_grid else None,
                quiet=quiet,
                progress=on_terminal() if progress is None else progress,
            )
            words = _sweep_words(
                sweep_request.without("seed") if jobs.seeds else sweep_request, optional_keys, first, settings
            )
            words += [f"{SWEEP_DIR}={quote_text(hydra_settings.sweep.dir)}"]
            words += ["hydra.sweeper.params=null"] if sweep_request != request else []
            try:
                run_hydra_app(sweep_request, ["-m"], words, jobs.run_job)
            except Exception as error:
                if state.handle_launcher_failure(error, quiet=quiet):
                    return 1
                user_error = mistakes.explain_sweep_error(error, sweep_request)
                if user_error is None:
                    raise
                raise user_error from error
            return state.finish(quiet=quiet)


def _find_lacking_keys(request: Request) -> set[str]:
    """Return the settings and groups of a sweep that some jobs lack.

    Raises UserError for a key that all jobs lack, and for a word that no job allows.
    """
    jobs = compose_jobs(request)
    lacking_keys = set()
    for key, text in request.setting_values.items():
        types = [type_ for job in jobs if (type_ := job.type_of(key)) is not None]
        if not types:
            raise UserError(mistakes.describe_unknown_key(key, jobs))
        value = read_text(str(text), null=True) if sweep_values(key, str(text)) is None else None
        if value is not None and "$" not in value:  # one value for all jobs
            require(any(not type_.values or value in type_.values for type_ in types), key, value, types[0].allowed)
        lacking_keys |= {key} if len(types) < len(jobs) else set()
    groups = [group for group in request.choices if not is_special(group)]
    return lacking_keys | {group for group in groups if any(group not in job.choices for job in jobs)}


def _checked_keys(request: Request) -> set[str]:
    """Return the keys of an untrusted sweep, all checked here, which Hydra's application need not know."""
    return {*request.setting_values, *(group for group in request.choices if not group.startswith("hydra/"))}


def _sweep_words(request: Request, optional_keys: set[str], first: Composition, settings: DictConfig) -> list[str]:
    """Return the overrides passed to Hydra. first: composition of the first job; settings: its composed Hydra settings.

    Hydra's application does not read untrusted files: it gets the settings that they make, which have been checked, and
    all other keys as optional ones.
    """
    if not request.is_untrusted:
        return hydra_words(request, optional_keys)
    choices = request.choices | find_trusted_choices(first)
    trusted = replace(request, config_dir=None, choices=choices, values=request.setting_values)
    set_by_caller = ("hydra.sweeper.params", SWEEP_DIR)
    changes = restricted_changes(first, settings).items()
    changed = {key: value for key, value in changes if is_run_control_key(key) and not key.startswith(set_by_caller)}
    return hydra_words(trusted, optional_keys) + [f"++{key}={to_hydra_text(changed[key])}" for key in changed]


@dataclass(frozen=True, slots=True)
class _SweepJobs:
    """What the jobs of a sweep share; pickled for the processes in which a launcher runs them.

    request: of the sweep. optional_keys: keys that are left out of a job whose options lack them. seeds: of each trial
    of a search. folder_of_equals: the folder of a sweep in which jobs may be equal; None if they are not. quiet,
    progress: as in Session.
    """

    request: Request
    optional_keys: set[str]
    seeds: list[Any]
    folder_of_equals: Path | None
    quiet: bool
    progress: bool

    def run_job(self, _: DictConfig) -> float:
        """Run the job that Hydra's settings describe, and return its metric."""
        hydra_settings = HydraConfig.get()
        options = self.request.values.get("options")
        with folder_in_use(None if options is None else str(read_text(str(options)))):
            request, mistake = self._parse_job(hydra_settings)

            def run(request: Request, folder: Path) -> float | None:
                if mistake is not None:
                    raise mistake
                return self._run_in(folder, request, hydra_settings)

            folder = self.folder_of_equals
            if folder is not None and not job.claim_request(request, folder, hydra_settings.job.num):
                return math.inf
            return job.run_job(run, request, self.seeds)

    def _run_in(self, folder: Path, request: Request, hydra_settings: Any) -> float | None:
        """Run the request of a job in a folder, and return its metric."""
        composition, settings = compose_request(request)
        if hydra_settings.output_subdir is not None:  # Hydra's file of its own settings is left as it is
            write_settings(request, settings, folder / hydra_settings.output_subdir, ("config", "overrides"))
        result = run_composed_command(
            composition,
            settings,
            folder,
            launcher=hydra_settings.launcher,
            quiet=self.quiet,
            progress=self.progress,
        )
        return result.metric if isinstance(result, Result) else None

    def _parse_job(self, hydra_settings: Any) -> tuple[Request, UserError | None]:
        """Return the request of a job, and the mistake in it, if there is one."""
        overrides: Any = OmegaConf.to_container(hydra_settings.overrides.task, resolve=False)  # ${.x} means nothing
        experiment, verb = f"{OPTIONAL}{EXPERIMENT}=", self.request.verb
        words = [str(word).replace(experiment, f"+{EXPERIMENT}=").removeprefix(OPTIONAL) for word in overrides]
        flags = {"--config-dir": self.request.config_dir} if self.request.config_dir else {}
        try:
            request = parse_request(CommandLine(verb, flags, words), self.optional_keys)
            return replace(request, user_keys=self.request.user_keys), None
        except UserError as error:
            return Request(verb, values={override_key(word): word.partition("=")[2] for word in words}), error
