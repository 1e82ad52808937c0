"""Run the request of a command line: once, as a sweep, or only to show its settings."""

from __future__ import annotations

import atexit
import logging
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log, env_override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lmtool.cli import mistakes
from lmtool.cli.allowed import find_trusted_choices, require_allowed_settings, restricted_changes
from lmtool.cli.arguments import CommandLine
from lmtool.cli.jobs import compose_jobs, compose_options
from lmtool.cli.unknown_keys import describe_unknown_key
from lmtool.cli.values import read_text
from lmtool.cli.words import add_sweep_parameters, parse_request
from lmtool.commands import run_command, settings_of
from lmtool.config.compose import BASE, OPTIONAL, Composition, chosen_options, hydra_state, hydra_words, verb_settings
from lmtool.config.grammar import (
    escape_interpolation,
    override_key,
    parse_value,
    quote_text,
    sweep_values,
    to_hydra_text,
)
from lmtool.config.options import EXPERIMENT, conf_dir, folder_in_use
from lmtool.config.request import OUT, Request, is_hydra_key
from lmtool.config.rules import require_folder
from lmtool.config.settings import SettingError, build_settings, describe_config_error
from lmtool.errors import UserError, first_line, translate_path_errors
from lmtool.results import Result
from lmtool.runs.resume import REQUEST, save_request
from lmtool.session import Session, on_terminal
from lmtool.sweeps import job, restart, sweep
from lmtool.system.process import require_environment
from lmtool.system.terminal import write_out


def run_line(line: CommandLine) -> int:
    """Run a command line and return its exit code.

    Raises UserError for a mistake in the settings, and whatever the command raises.
    """
    logging.raiseExceptions = False  # no traceback for logging to a closed terminal or pipe
    require_environment()
    request = discard_output_of_higher_ranks(parse_request(line))
    part, info = line.flags.get("--cfg"), line.flags.get("--info")
    if info is not None:
        if part is not None or line.multirun:
            raise UserError("--info: show one thing at a time, and without -m")
        compose_request(request)  # which checks what Hydra will read
        try:
            run_hydra_app(request, [f"--info={info}"], hydra_words(request), lambda _: None)
        except (ValueError, OSError, HydraException, OmegaConfBaseException) as error:
            raise UserError(f"--info: {first_line(error)}") from error
        return 0
    if part is not None:
        return _show_settings(request, part, line.flags.get("--package"), resolve="--resolve" in line.flags)
    if request.sweep:
        return run_sweep(request)
    run_once(request)
    return 0


def compose_request(request: Request) -> tuple[Composition, DictConfig]:
    """Compose a request: its options, and its settings with all values. Raises UserError for a mistake."""
    composition = compose_options(request)
    try:
        settings = composition.settings()
        if request.is_untrusted:
            require_allowed_settings(composition, settings)
        return composition, settings
    except SettingError as error:
        raise UserError(mistakes.prefix_place(str(error), error.key, composition)) from error
    except Exception as error:
        user_error = mistakes.explain_values_error(error, composition)
        if user_error is None:
            raise
        raise user_error from error


def _show_settings(request: Request, part: str, package: str | None, *, resolve: bool) -> int:
    """Print composed settings in YAML. part: job, hydra or all."""
    settings = compose_request(request)[1]
    shown: Any = verb_settings(settings) if part == "job" else settings
    if part == "hydra":
        shown = OmegaConf.masked_copy(settings, ["hydra"])
    with _resolve_hydra_by(settings):
        try:
            if package is not None:
                shown = OmegaConf.select(shown, package)
            text = OmegaConf.to_yaml(shown, resolve=resolve) if OmegaConf.is_config(shown) else f"{shown}\n"
        except OmegaConfBaseException as error:
            raise UserError(f"--cfg {part}: {describe_config_error(error)}") from error
    if package is not None and shown is None:
        raise UserError(f"--package {package}: no such settings")
    write_out((f"# @package {package}\n" if package else "") + text)
    return 0


@contextmanager
def _resolve_hydra_by(settings: DictConfig) -> Iterator[None]:
    """Resolve ${hydra:...} in the block by these settings."""
    current = HydraConfig.instance()
    before = current.cfg
    try:
        current.set_config(settings)
        OmegaConf.set_readonly(settings.hydra, None)  # the output folder is set later
        yield
    finally:
        current.cfg = before


def run_once(request: Request) -> Any:
    """Run a request in its output folder, with its log and the files of its settings there; return the result."""
    composition, settings = compose_request(request)
    hydra_settings, started_in = settings.hydra, os.getcwd()
    if hydra_settings.callbacks:
        raise UserError("hydra.callbacks: Hydra calls them in sweeps (-m); leave them out of a single run")
    with _resolve_hydra_by(settings), ExitStack() as stack:
        folder = stack.enter_context(_make_output_folder(request, settings))
        with open_dict(hydra_settings):
            hydra_settings.runtime.output_dir = folder
        stack.callback(os.chdir, started_in)
        try:
            if hydra_settings.job.chdir:
                os.chdir(folder)
            configure_log(hydra_settings.job_logging, hydra_settings.verbose)
            if hydra_settings.output_subdir is not None:
                _write_settings(request, settings, Path(folder, hydra_settings.output_subdir))
        except OSError as error:
            raise mistakes.explain_folder_error(error) from error
        except (ValueError, KeyError) as error:  # of logging, e.g. for its file
            if isinstance(error.__cause__, OSError):
                raise mistakes.explain_folder_error(error.__cause__) from error
            raise UserError(f"hydra.job_logging: {first_line(error)} ({type(error).__name__})") from error
        keeps_output = folder == os.path.join(started_in, hydra_settings.run.dir)
        with env_override(hydra_settings.job.env_set):
            return run_composed_command(
                composition, settings, Path(folder), progress=on_terminal(), keeps_output=keeps_output
            )


def run_composed_command(
    composition: Composition,
    settings: DictConfig,
    folder: Path,
    command: Callable[[Any, Session], Any] | None = None,
    **session_arguments: Any,
) -> Any:
    """Run the command of composed settings in a folder. command: instead of the verb's own. session_arguments:
    further arguments of the Session.

    Raises UserError for a mistake in the settings, and whatever the command raises.
    """
    request = composition.request
    config_dir = Path(request.config_dir) if request.config_dir else None
    with mistakes.translate_errors(composition), translate_path_errors():
        values = build_settings(verb_settings(settings), settings_of(request.verb), config_dir)
        session = Session(folder, request, chosen_options(settings.hydra), **session_arguments)
        result = run_command(request.verb, values, session) if command is None else command(values, session)
        if isinstance(result, Result):
            result.notes = session.notes
        return result


def run_sweep(request: Request, *, quiet: bool = False, progress: bool | None = None) -> int:
    """Run the jobs of a sweep by Hydra's sweeper and launcher, and return the exit code. quiet: whether to print
    nothing. progress: whether to show bars; None: on a terminal.
    """
    hydra_values = {key: value for key, value in request.values.items() if is_hydra_key(key)}
    first_job = replace(compose_jobs(request)[0].request, values=hydra_values | {"hydra.mode": "MULTIRUN"}, sweep=False)
    first, settings = compose_request(first_job)
    session_arguments = {"quiet": quiet, "progress": on_terminal() if progress is None else progress}
    with hydra_state(), _resolve_hydra_by(settings):
        hydra_settings = settings.hydra
        sweep_request = add_sweep_parameters(request, hydra_settings.sweeper.get("params") or {})
        hydra_settings.sweep.dir = str(hydra_settings.sweep.dir)  # with the time of now
        require_folder("out", hydra_settings.sweep.dir)
        optional_keys, is_grid = _find_optional_keys(sweep_request), restart.is_grid(hydra_settings)
        folder_of_equal_jobs = Path(hydra_settings.sweep.dir) if optional_keys and is_grid else None
        if request.is_untrusted:
            groups = (group for group in sweep_request.choices if not group.startswith("hydra/"))
            optional_keys = {*_setting_keys(sweep_request), *groups}
        with sweep.begin_sweep(sweep_request, hydra_settings) as state:
            seeds = [] if is_grid else _read_seeds(sweep_request)
            words = _sweep_words(
                sweep_request.without("seed") if seeds else sweep_request, optional_keys, first, settings
            )
            words += [f"hydra.sweep.dir={quote_text(hydra_settings.sweep.dir)}"]
            words += ["hydra.sweeper.params=null"] if sweep_request != request else []
            name = request.verb if request.is_untrusted else request.config_name

            def run_job(_: DictConfig) -> float:
                return _run_sweep_job(sweep_request, optional_keys, seeds, folder_of_equal_jobs, session_arguments)

            try:
                run_hydra_app(replace(sweep_request, config_name=name), ["-m"], words, run_job)
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
    return [key for key in request.values if not is_hydra_key(key)]


def _find_optional_keys(request: Request) -> set[str]:
    """Return the settings and groups of a sweep that not every job has. Raises UserError for a key that no job has."""
    jobs = compose_jobs(request)
    optional_keys = set()
    for key in _setting_keys(request):
        is_lacking = [job.type_of(key) is None for job in jobs]
        if all(is_lacking):
            raise UserError(describe_unknown_key(key, str(request.values[key]), jobs, python=request.python))
        optional_keys |= {key} if any(is_lacking) else set()
    groups = [group for group in request.choices if not re.search(r"[/@+]", group)]
    return optional_keys | {group for group in groups if any(group not in job.groups for job in jobs)}


def _read_seeds(request: Request) -> list[Any]:
    """Return the seeds of each trial of a search, if there are several."""
    values = sweep_values("seed", str(request.values.get("seed", "")))
    return [parse_value(value).value() for value in values or []]


def _sweep_words(request: Request, optional_keys: set[str], first: Composition, settings: DictConfig) -> list[str]:
    """Return what Hydra's application gets of a sweep. first, settings: the options of the first job, and its settings
    of Hydra.

    That application does not read untrusted files: it gets the settings that they make, which have been checked, and
    all other keys as optional ones.
    """
    if not request.is_untrusted:
        return hydra_words(request, optional_keys)
    values = {key: value for key, value in request.values.items() if not is_hydra_key(key)}
    trusted = replace(request, config_dir=None, choices=request.choices | find_trusted_choices(first), values=values)
    set_by_caller = ("hydra.sweeper.params", "hydra.sweep.dir")
    changes = restricted_changes(first, settings).items()
    changed = {key: value for key, value in changes if is_hydra_key(key) and not key.startswith(set_by_caller)}
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
                _write_settings(request, settings, folder / hydra_settings.output_subdir, ("config", "overrides"))
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
    flags = {"--config-dir": sweep_request.config_dir, "--config-name": sweep_request.config_name}
    line = CommandLine(sweep_request.verb, {name: value for name, value in flags.items() if value is not None}, words)
    try:
        return replace(parse_request(line, optional_keys), user_keys=sweep_request.user_keys), None
    except UserError as error:
        values = {override_key(word): word.partition("=")[2] for word in words}
        return Request(sweep_request.verb, values=values), error


def run_hydra_app(request: Request, flags: list[str], words: list[str], task: Callable[[DictConfig], object]) -> None:
    """Run Hydra's own application with these flags and overrides, and the folders of a request."""
    folder = str(conf_dir().absolute())
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["lmtool", *flags, *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors are raised instead of printed
    try:
        with hydra_state():
            name = request.config_name or request.verb
            hydra.main(config_path=folder, config_name=name, **BASE)(task)()
    finally:
        sys.argv = argv
        os.environ |= {"HYDRA_FULL_ERROR": full_error or ""}
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]


def _write_settings(
    request: Request, settings: DictConfig, folder: Path, names: Collection[str] = ("config", "hydra", "overrides")
) -> None:
    """Write the files that Hydra's users expect in a run, and the request."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"config": verb_settings(settings), "hydra": OmegaConf.masked_copy(settings, ["hydra"])}
    parts["overrides"] = settings.hydra.overrides.task
    for name in names:
        (folder / f"{name}.yaml").write_text(OmegaConf.to_yaml(parts[name]), encoding="utf-8")
    save_request(folder, request, REQUEST)


@contextmanager
def _make_output_folder(request: Request, settings: DictConfig) -> Iterator[str]:
    """Make the output folder of a run, and give its path: where it may not be made, and nobody named it, that of a
    temporary one for a verb whose result is what it prints.
    """
    folder = str(settings.hydra.run.dir)
    require_folder("out", folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        named = {OUT, "hydra.run.dir"} & request.values.keys()
        if named or settings_of(request.verb).makes or settings.get("nbest"):
            raise mistakes.explain_folder_error(error) from error
        write_out(f"note: {folder} cannot be made ({error.strerror}): the result is printed, not kept\n")
        with tempfile.TemporaryDirectory(prefix="lmtool-") as temporary:
            yield temporary
    else:
        yield os.path.abspath(folder)


def discard_output_of_higher_ranks(request: Request) -> Request:
    """Return this process's request; higher ranks get a temporary output folder, removed when the process ends.

    Raises UserError for commands that several processes cannot run together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return request
    if request.verb != "train" or request.sweep:
        raise UserError("torchrun starts several processes, which can only train one model together: leave it out")
    if os.environ.get("RANK", "0") == "0":
        return request
    folder = tempfile.mkdtemp(prefix="lmtool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    elsewhere = Request("train", values={OUT: escape_interpolation(folder), "hydra.output_subdir": None})
    return request.without("hydra.run.dir").updated(elsewhere)
