"""Run the jobs of a sweep by Hydra's sweeper and launcher."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lmtool.config.composition import OPTIONAL, Composition, hydra_state, hydra_words, run_hydra_app
from lmtool.config.grammar import override_key, parse_value, quote_text, sweep_values, to_hydra_text
from lmtool.config.options import EXPERIMENT, folder_in_use
from lmtool.config.request import Request, is_run_control_key
from lmtool.config.rules import require_folder
from lmtool.errors import UserError
from lmtool.requests import mistakes
from lmtool.requests.allowed import find_trusted_choices, restricted_changes
from lmtool.requests.arguments import CommandLine
from lmtool.requests.compose import compose_jobs, compose_request
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
    session_arguments = {"quiet": quiet, "progress": on_terminal() if progress is None else progress}
    with hydra_state(), resolve_hydra_by(settings):
        hydra_settings = settings.hydra
        sweep_request = add_sweep_parameters(request, hydra_settings.sweeper.get("params") or {})
        hydra_settings.sweep.dir = str(hydra_settings.sweep.dir)  # with the time of now
        require_folder("out", hydra_settings.sweep.dir)
        optional_keys, is_grid = _find_optional_keys(sweep_request), sweep.is_grid(hydra_settings)
        folder_of_equal_jobs = Path(hydra_settings.sweep.dir) if optional_keys and is_grid else None
        if request.is_untrusted:
            groups = (group for group in sweep_request.choices if not group.startswith("hydra/"))
            optional_keys = {*_setting_keys(sweep_request), *groups}
        with sweep.begin_sweep(sweep_request, hydra_settings) as state:
            swept_seeds = None if is_grid else sweep_values("seed", str(sweep_request.values.get("seed", "")))
            seeds = [parse_value(seed).value() for seed in swept_seeds or []]  # of each trial of a search
            words = _sweep_words(
                sweep_request.without("seed") if seeds else sweep_request, optional_keys, first, settings
            )
            words += [f"hydra.sweep.dir={quote_text(hydra_settings.sweep.dir)}"]
            words += ["hydra.sweeper.params=null"] if sweep_request != request else []

            def run_job(_: DictConfig) -> float:
                return _run_sweep_job(sweep_request, optional_keys, seeds, folder_of_equal_jobs, session_arguments)

            try:
                run_hydra_app(sweep_request, ["-m"], words, run_job)
            except Exception as error:
                if state.handle_launcher_failure(error):
                    return 1
                user_error = mistakes.explain_sweep_error(error, sweep_request)
                if user_error is None:
                    raise
                raise user_error from error
            return state.finish(quiet=quiet)


def _setting_keys(request: Request) -> list[str]:
    """Return the keys of a request's values, except Hydra's."""
    return [key for key in request.values if not is_run_control_key(key)]


def _find_optional_keys(request: Request) -> set[str]:
    """Return the settings and groups of a sweep that not every job has. Raises UserError for a key that no job has."""
    jobs = compose_jobs(request)
    optional_keys = set()
    for key in _setting_keys(request):
        is_lacking = [job.type_of(key) is None for job in jobs]
        if all(is_lacking):
            raise UserError(mistakes.describe_unknown_key(key, jobs))
        optional_keys |= {key} if any(is_lacking) else set()
    groups = [group for group in request.choices if not re.search(r"[/@+]", group)]
    return optional_keys | {group for group in groups if any(group not in job.choices for job in jobs)}


def _sweep_words(request: Request, optional_keys: set[str], first: Composition, settings: DictConfig) -> list[str]:
    """Return what Hydra's application gets of a sweep. first, settings: the options of the first job, and its settings
    of Hydra.

    That application does not read untrusted files: it gets the settings that they make, which have been checked, and
    all other keys as optional ones.
    """
    if not request.is_untrusted:
        return hydra_words(request, optional_keys)
    values = {key: value for key, value in request.values.items() if not is_run_control_key(key)}
    trusted = replace(request, config_dir=None, choices=request.choices | find_trusted_choices(first), values=values)
    set_by_caller = ("hydra.sweeper.params", "hydra.sweep.dir")
    changes = restricted_changes(first, settings).items()
    changed = {key: value for key, value in changes if is_run_control_key(key) and not key.startswith(set_by_caller)}
    return hydra_words(trusted, optional_keys) + [f"++{key}={to_hydra_text(changed[key])}" for key in changed]


def _run_sweep_job(
    sweep_request: Request,
    optional_keys: set[str],
    seeds: list[Any],
    folder_of_equal_jobs: Path | None,
    session_arguments: dict[str, Any],
) -> float:
    """Run a job of a sweep, in the process that its launcher chose, and return its metric.

    optional_keys: keys that are left out of a job whose options lack them. seeds: of each trial of a search.
    folder_of_equal_jobs: the folder of a sweep in which jobs may be equal; None if they are not.
    """
    hydra_settings = HydraConfig.get()
    options = sweep_request.values.get("options")
    with folder_in_use(None if options is None else str(read_text(str(options)))):
        job_request, mistake = _parse_job(sweep_request, optional_keys, hydra_settings)

        def run(request: Request, folder: Path) -> float | None:
            if mistake is not None:
                raise mistake
            composition, settings = compose_request(request)
            if hydra_settings.output_subdir is not None:  # Hydra's file of its own settings is left as it is
                write_settings(request, settings, folder / hydra_settings.output_subdir, ("config", "overrides"))
            launcher = hydra_settings.launcher
            result = run_composed_command(composition, settings, folder, launcher=launcher, **session_arguments)
            return result.metric if isinstance(result, Result) else None

        folder = folder_of_equal_jobs
        if folder is not None and not job.is_first_of_equals(job_request, folder, hydra_settings.job.num):
            return math.inf
        return job.run_job(run, job_request, seeds)


def _parse_job(
    sweep_request: Request, optional_keys: set[str], hydra_settings: Any
) -> tuple[Request, UserError | None]:
    """Return the request of a job of a sweep, and the mistake in it, if there is one."""
    overrides: Any = OmegaConf.to_container(hydra_settings.overrides.task, resolve=False)  # where ${.x} has no meaning
    experiment = f"{OPTIONAL}{EXPERIMENT}="
    words = [str(word).replace(experiment, f"+{EXPERIMENT}=").removeprefix(OPTIONAL) for word in overrides]
    flags = {"--config-dir": sweep_request.config_dir} if sweep_request.config_dir else {}
    line = CommandLine(sweep_request.verb, flags, words)
    try:
        return replace(parse_request(line, optional_keys), user_keys=sweep_request.user_keys), None
    except UserError as error:
        values = {override_key(word): word.partition("=")[2] for word in words}
        return Request(sweep_request.verb, values=values), error
