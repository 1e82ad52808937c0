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
from lmtool.cli.allowed import changes, require_allowed_settings, trusted_choices
from lmtool.cli.arguments import CommandLine
from lmtool.cli.jobs import jobs_of
from lmtool.cli.unknown_keys import unknown_key
from lmtool.cli.values import read_text
from lmtool.cli.words import requested, with_parameters
from lmtool.commands import own_types, run_command, settings_of
from lmtool.config.compose import BASE, OPTIONAL, Composition, choices_of, hydra_state, hydra_words, own_part
from lmtool.config.grammar import as_text, escaped, key_of, parsed, quoted, swept
from lmtool.config.options import EXPERIMENT, conf_dir, folder_in_use
from lmtool.config.request import OUT, Request, is_hydras
from lmtool.config.rules import require_folder
from lmtool.config.settings import SettingError, error_line, typed
from lmtool.errors import UserError, first_line, of_paths
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
    request = only_the_first_writes(requested(line))
    part, info = line.flags.get("--cfg"), line.flags.get("--info")
    if info is not None:
        if part is not None or line.multirun:
            raise UserError("--info: show one thing at a time, and without -m")
        composed(request)  # which checks what Hydra will read
        try:
            by_hydra(request, [f"--info={info}"], hydra_words(request), lambda _: None)
        except (ValueError, OSError, HydraException, OmegaConfBaseException) as error:
            raise UserError(f"--info: {first_line(error)}") from error
        return 0
    if part is not None:
        return _show(request, part, line.flags.get("--package"), resolve="--resolve" in line.flags)
    if request.sweep:
        return run_sweep(request)
    run_once(request)
    return 0


def composed(request: Request) -> tuple[Composition, DictConfig]:
    """Compose a request: its options, and its settings with all values. Raises UserError for a mistake."""
    composition = mistakes.composed(request, own_types(request.verb))
    try:
        settings = composition.settings()
        if request.is_guarded:
            require_allowed_settings(composition, settings)
        return composition, settings
    except SettingError as error:
        raise UserError(mistakes.placed(str(error), error.key, composition)) from error
    except Exception as error:
        fault = mistakes.of_values(error, composition)
        if fault is None:
            raise
        raise fault from error


def _show(request: Request, part: str, package: str | None, *, resolve: bool) -> int:
    """Print composed settings in YAML. part: job, hydra or all."""
    settings = composed(request)[1]
    shown: Any = own_part(settings) if part == "job" else settings
    if part == "hydra":
        shown = OmegaConf.masked_copy(settings, ["hydra"])
    with _as_current(settings):
        try:
            if package is not None:
                shown = OmegaConf.select(shown, package)
            text = OmegaConf.to_yaml(shown, resolve=resolve) if OmegaConf.is_config(shown) else f"{shown}\n"
        except OmegaConfBaseException as error:
            raise UserError(f"--cfg {part}: {error_line(error)}") from error
    if package is not None and shown is None:
        raise UserError(f"--package {package}: no such settings")
    write_out((f"# @package {package}\n" if package else "") + text)
    return 0


@contextmanager
def _as_current(settings: DictConfig) -> Iterator[None]:
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
    composition, settings = composed(request)
    of_hydra, started_in = settings.hydra, os.getcwd()
    if of_hydra.callbacks:
        raise UserError("hydra.callbacks: Hydra calls them in sweeps (-m); leave them out of a single run")
    with _as_current(settings), ExitStack() as stack:
        folder = stack.enter_context(_output_folder(request, settings))
        with open_dict(of_hydra):
            of_hydra.runtime.output_dir = folder
        stack.callback(os.chdir, started_in)
        try:
            if of_hydra.job.chdir:
                os.chdir(folder)
            configure_log(of_hydra.job_logging, of_hydra.verbose)
            if of_hydra.output_subdir is not None:
                _save(request, settings, Path(folder, of_hydra.output_subdir))
        except OSError as error:
            raise mistakes.of_folder(error) from error
        except (ValueError, KeyError) as error:  # of logging, e.g. for its file
            if isinstance(error.__cause__, OSError):
                raise mistakes.of_folder(error.__cause__) from error
            raise UserError(f"hydra.job_logging: {first_line(error)} ({type(error).__name__})") from error
        keeps = folder == os.path.join(started_in, of_hydra.run.dir)
        with env_override(of_hydra.job.env_set):
            return run_command_of(composition, settings, Path(folder), progress=on_terminal(), keeps=keeps)


def run_command_of(
    composition: Composition,
    settings: DictConfig,
    folder: Path,
    command: Callable[[Any, Session], Any] | None = None,
    **of_session: Any,
) -> Any:
    """Run the command of composed settings in a folder. command: instead of the verb's own. of_session: further
    arguments of the Session.

    Raises UserError for a mistake in the settings, and whatever the command raises.
    """
    request = composition.request
    beside = Path(request.config_dir) if request.config_dir else None
    with mistakes.explained(composition), of_paths():
        values = typed(own_part(settings), settings_of(request.verb), beside)
        session = Session(folder, request, choices_of(settings.hydra), **of_session)
        result = run_command(request.verb, values, session) if command is None else command(values, session)
        if isinstance(result, Result):
            result.notes = session.notes
        return result


def run_sweep(request: Request, *, quiet: bool = False, progress: bool | None = None) -> int:
    """Run the jobs of a sweep by Hydra's sweeper and launcher, and return the exit code. quiet: whether to print
    nothing. progress: whether to show bars; None: on a terminal.
    """
    own = own_types(request.verb)
    hydras = {key: value for key, value in request.values.items() if is_hydras(key)} | {"hydra.mode": "MULTIRUN"}
    first, settings = composed(replace(jobs_of(request, own)[0].request, values=hydras, sweep=False))
    with hydra_state(), _as_current(settings):
        of_hydra = settings.hydra
        asked = with_parameters(request, of_hydra.sweeper.get("params") or {}, own)
        of_hydra.sweep.dir = str(of_hydra.sweep.dir)  # with the time of now
        require_folder("out", of_hydra.sweep.dir)
        jobs = jobs_of(asked, own)
        names = [key for key in asked.values if not is_hydras(key)]
        lacking = {key: [job.type_of(key) is None for job in jobs] for key in names}
        unused = [group for group in asked.choices if not re.search(r"[/@+]", group)]
        for key in (key for key in names if all(lacking[key])):
            raise UserError(unknown_key(key, str(asked.values[key]), jobs, python=request.python))
        optional = {key for key in names if any(lacking[key])}
        optional |= {group for group in unused if any(group not in job.groups for job in jobs)}
        compares = bool(optional) and restart.is_grid(of_hydra)  # jobs, which may be equal
        if request.is_guarded:
            optional = {*names, *(group for group in asked.choices if not group.startswith("hydra/"))}
        with sweep.started(asked, of_hydra) as state:
            is_grid, seed = restart.is_grid(of_hydra), str(asked.values.get("seed", ""))
            seeds = [] if is_grid else [parsed(each).value() for each in swept("seed", seed) or []]
            words = _words_of_sweep(asked.without("seed") if seeds else asked, optional, first, settings)
            words += [f"hydra.sweep.dir={quoted(of_hydra.sweep.dir)}"]
            words += ["hydra.sweeper.params=null"] if asked != request else []
            about: dict[str, Any] = {"quiet": quiet, "progress": on_terminal() if progress is None else progress}
            folder = Path(of_hydra.sweep.dir) if compares else None
            name = request.verb if request.is_guarded else request.config_name
            try:
                told = replace(asked, config_name=name)
                by_hydra(told, ["-m"], words, lambda _: _job(asked, optional, seeds, folder, about))
            except Exception as error:
                if state.cut_off(error):
                    return 1
                fault = mistakes.of_sweep(error, asked, own)
                if fault is None:
                    raise
                raise fault from error
            return state.end(quiet=quiet)


def _words_of_sweep(asked: Request, optional: set[str], first: Composition, settings: DictConfig) -> list[str]:
    """Return what Hydra's application gets of a sweep. optional: keys that not every job has. first, settings: the
    options of the first job, and its settings of Hydra.

    That application does not read somebody else's files: it gets the settings that they make, which have been checked,
    and all other keys as optional ones.
    """
    if not asked.is_guarded:
        return hydra_words(asked, optional)
    values = {key: value for key, value in asked.values.items() if not is_hydras(key)}
    told = replace(asked, config_dir=None, choices=asked.choices | trusted_choices(first), values=values)
    given = ("hydra.sweeper.params", "hydra.sweep.dir")  # by the caller
    changed = {key: value for key, value in changes(first, settings).items() if not key.startswith(given)}
    return hydra_words(told, optional) + [f"++{key}={as_text(changed[key])}" for key in changed if is_hydras(key)]


def _job(asked: Request, optional: set[str], seeds: list[Any], sweep: Path | None, about: dict[str, Any]) -> float:
    """Run a job of a sweep, in the process that its launcher chose, and return its metric.

    asked: the sweep's request. optional: keys that are left out of a job whose options lack them. seeds: of each trial
    of a search. sweep: the folder of a sweep in which jobs may be equal; None if they are not.
    """
    of_hydra = HydraConfig.get()
    given: Any = OmegaConf.to_container(of_hydra.overrides.task, resolve=False)  # ${.x} has no meaning in this list
    experiment = f"{OPTIONAL}{EXPERIMENT}="
    words = [str(word).replace(experiment, f"+{EXPERIMENT}=").removeprefix(OPTIONAL) for word in given]

    def run(request: Request, folder: Path) -> float | None:
        if mistake is not None:
            raise mistake
        composition, settings = composed(request)
        if of_hydra.output_subdir is not None:  # Hydra's file of its own settings is left as it is
            _save(request, settings, folder / of_hydra.output_subdir, ("config", "overrides"))
        result = run_command_of(composition, settings, folder, launcher=of_hydra.launcher, **about)
        return result.metric if isinstance(result, Result) else None

    places = {"--config-dir": asked.config_dir, "--config-name": asked.config_name}
    flags = {name: value for name, value in places.items() if value is not None}
    mistake: UserError | None = None
    options = asked.values.get("options")
    with folder_in_use(None if options is None else str(read_text(str(options)))):
        try:
            request = replace(requested(CommandLine(asked.verb, flags, words), optional), typed=asked.typed)
        except UserError as error:
            request = Request(asked.verb, values={key_of(word): word.partition("=")[2] for word in words})
            mistake = error
        if sweep is not None and not job.is_first(request, sweep, of_hydra.job.num):
            return math.inf
        return job.guarded(run, request, seeds)


def by_hydra(request: Request, flags: list[str], words: list[str], task: Callable[[DictConfig], object]) -> None:
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


def _save(
    request: Request, settings: DictConfig, folder: Path, names: Collection[str] = ("config", "hydra", "overrides")
) -> None:
    """Write the files that Hydra's users expect in a run, and the request."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"config": own_part(settings), "hydra": OmegaConf.masked_copy(settings, ["hydra"])}
    parts["overrides"] = settings.hydra.overrides.task
    for name in names:
        (folder / f"{name}.yaml").write_text(OmegaConf.to_yaml(parts[name]), encoding="utf-8")
    save_request(folder, request, REQUEST)


@contextmanager
def _output_folder(request: Request, settings: DictConfig) -> Iterator[str]:
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
            raise mistakes.of_folder(error) from error
        write_out(f"note: {folder} cannot be made ({error.strerror}): the result is printed, not kept\n")
        with tempfile.TemporaryDirectory(prefix="lmtool-") as temporary:
            yield temporary
    else:
        yield os.path.abspath(folder)


def only_the_first_writes(request: Request) -> Request:
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
    elsewhere = Request("train", values={OUT: escaped(folder), "hydra.output_subdir": None})
    return request.without("hydra.run.dir").updated(elsewhere)
