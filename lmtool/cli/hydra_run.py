"""Compose the configuration of a command line with Hydra and run its command, once or as a sweep."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any

import hydra
from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobRuntime, JobStatus, configure_log, env_override
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict

from lmtool.cli import hydra_errors
from lmtool.cli.arguments import FLAGS_WITH_VALUE, CommandLine
from lmtool.cli.help_pages import CONFIG_DIR, MULTIRUN, config_dir_of, flag_value
from lmtool.cli.hydra_rules import CheckedLoader
from lmtool.cli.line_checks import only_the_first_writes, with_earlier_words
from lmtool.cli.line_settings import with_current_names
from lmtool.commands import run_command, settings_of
from lmtool.config.options import conf_dir, places
from lmtool.config.overrides import key_of
from lmtool.config.rules import require_folder
from lmtool.config.settings import typed
from lmtool.config.yaml_files import require_bounded_aliases
from lmtool.errors import of_paths
from lmtool.results import Result
from lmtool.session import Session
from lmtool.sweeps import job, sweep
from lmtool.system.process import require_environment
from lmtool.system.terminal import write_out

VERSION = "1.3"  # version of Hydra's behaviour
# Flags that run the verb.
RUNS = (*MULTIRUN, *CONFIG_DIR, "--run", "-r", "--config-name", "-cn", "--config-path", "-cp")
MADE_OF_FILES = ("train", "ensemble", "distil", "convert", "report")  # verbs whose result is their output folder
_folder: ContextVar[Path | None] = ContextVar("config_dir", default=None)
_one_at_a_time = RLock()  # Hydra's state belongs to the process


class OptionFolders(SearchPathPlugin):
    """A plugin that adds external option folders and the --config-dir folder to Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folders after lmtool's own."""
        for place in places():
            search_path.append(provider="lmtool-options", path=f"file://{place.folder}")
        folder = _folder.get()
        if folder is not None:
            search_path.append(provider="command-line", path=f"file://{folder.absolute()}")  # as Hydra names it


def run_verb(line: CommandLine, *, quiet: bool = False, progress: bool | None = None) -> int:
    """Run a verb's command and return the exit code. quiet: whether to print none of its results. progress: whether to
    show bars; None: on a terminal.

    Raises UserError for a mistake in the settings, and whatever the command raises.
    """
    logging.raiseExceptions = False  # no traceback for logging to a closed terminal or pipe
    require_environment()
    line = with_current_names(only_the_first_writes(with_earlier_words(line)))
    failed: list[Exception] = []
    task = _task(line, failed, quiet=quiet, progress=progress)
    with sweep.watched() as watched, hydra_state(), _as_command_line(line.words):
        try:
            _run(line, task)
        except sweep.Refused as refused:
            raise hydra_errors.as_user_error(refused.reason, line, composing=False) or refused.reason from None
        except Exception as error:
            fault = hydra_errors.as_user_error(error, line, composing=watched.folder is None)
            if fault is not None:
                raise fault from error
            if watched.cut_off(error):
                return 1
            raise
        if failed:
            raise failed[0]
        return watched.end(quiet=quiet)


def _run(line: CommandLine, task: Callable[[Any], float | None]) -> None:
    """Compose a line with Hydra and run it, once or as a sweep, or show what its other flags request.

    hydra.main has no hook to check the composed settings before it creates callbacks and logging from them, so the
    application that it would build runs here with a checking loader. It would also compose each line twice, first
    only to learn whether it is a sweep, which takes a third of the time of a short command.
    """
    assert line.verb is not None, "a line without a verb is not run"
    name = flag_value(line.flags, "--config-name", "-cn") or line.verb
    folder = flag_value(line.flags, "--config-path", "-cp") or str(conf_dir())
    runs = all(
        flag.partition("=")[0] in RUNS
        for before, flag in pairwise(["", *line.flags])
        if before not in FLAGS_WITH_VALUE  # else the flag is its value
    )
    for path in hydra_errors.user_files(line):
        require_bounded_aliases(path)
    flags = get_args_parser().parse_args(line.flags) if line.flags else None
    application = checked_application(line, os.path.abspath(folder))
    if runs:
        mode = "hydra.mode=MULTIRUN"
        words = line.overrides if mode in line.overrides else [*line.overrides, mode]
        if not _composed_once(application, name, line, task):
            application.multirun(name, task, words)
        return
    assert flags is not None, "without flags a line runs"
    if flags.cfg:
        application.show_cfg(name, line.overrides, flags.cfg, flags.package, flags.resolve)
    elif flags.info:
        application.show_info(flags.info, name, line.overrides)
    elif flags.hydra_help:  # composing sets up logging
        application.compose_config(name, line.overrides, RunMode.MULTIRUN, validate_sweep_overrides=False)
    if not (flags.cfg or flags.info):
        hydra.main(version_base=VERSION, config_path=str(conf_dir()), config_name=line.verb)(task)()


@contextmanager
def hydra_state() -> Iterator[None]:
    """Let one thread use Hydra in the block, and restore the state of the caller's own Hydra application after it."""
    with _one_at_a_time:
        base, name = version.getbase(), JobRuntime().get("name")
        version.setbase(VERSION)
        try:
            yield
        finally:
            version.VersionBase().version_base = base
            JobRuntime().set("name", name)


def checked_application(line: CommandLine, folder: str) -> Hydra:
    """Return a Hydra application, not the global one, that composes the YAML files of a folder by a CheckedLoader."""
    if OptionFolders not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(OptionFolders)
    token = _folder.set(config_dir_of(line.flags))
    try:
        return Hydra("lmtool", CheckedLoader(create_config_search_path(folder), line))
    finally:
        _folder.reset(token)


def _composed_once(application: Any, name: str, line: CommandLine, task: Callable[[Any], float | None]) -> bool:
    """Run a line as a single run; return False and run nothing if it is a sweep."""
    if line.multirun or (line.flags and application.get_mode(name, line.overrides) == RunMode.MULTIRUN):
        return False
    composed = application.compose_config(name, line.overrides, RunMode.RUN, with_log_configuration=True)
    if composed.hydra.mode == RunMode.MULTIRUN:
        return False
    composed.hydra.mode = RunMode.RUN
    callbacks = Callbacks(composed)
    callbacks.on_run_start(config=composed, config_name=name)
    with _output_folder(str(line.verb), composed) as output:
        ended = _run_once(composed, output, callbacks, task)
    callbacks.on_run_end(config=composed, config_name=name, job_return=ended)
    return True


@contextmanager
def _output_folder(verb: str, composed: Any) -> Iterator[str]:
    """Make the output folder of a run, and give its path: where it may not be made, and nobody named it, that of a
    temporary one for a verb whose result is what it prints.
    """
    folder = str(composed.hydra.run.dir)
    require_folder("hydra.run.dir", folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        named = any(key_of(word) == "hydra.run.dir" for word in composed.hydra.overrides.hydra)
        if named or verb in MADE_OF_FILES or composed.get("nbest"):
            raise
        write_out(f"note: {folder} cannot be made ({error.strerror}): the result is printed, not kept\n")
        with tempfile.TemporaryDirectory(prefix="lmtool-") as temporary:
            yield temporary
    else:
        yield os.path.abspath(folder)


def _run_once(composed: Any, folder: str, callbacks: Callbacks, task: Callable[[Any], float | None]) -> JobReturn:
    """Run the command of composed settings in a folder, with the callbacks, logging and files of Hydra's run_job.

    run_job copies all settings five times, which takes 8 of the 47 ms of preprocess data=toy (EPYC, 2026-11).
    """
    settings, current = composed.hydra, HydraConfig.instance()
    started_in, before = os.getcwd(), current.cfg
    try:
        with open_dict(settings):
            settings.runtime.output_dir = folder
        current.set_config(composed)  # from where ${hydra:...} is resolved
        own = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
        if settings.job.chdir:
            os.chdir(folder)
        configure_log(settings.job_logging, settings.verbose)
        if settings.output_subdir is not None:
            kept = Path(folder, settings.output_subdir)
            kept.mkdir(parents=True, exist_ok=True)
            for part, values in ("config", own), ("hydra", current.cfg), ("overrides", settings.overrides.task):
                (kept / f"{part}.yaml").write_text(OmegaConf.to_yaml(values), encoding="utf-8")
        ended = JobReturn(list(settings.overrides.task), own, composed, os.getcwd(), "lmtool", JobStatus.COMPLETED)
        with env_override(settings.job.env_set):
            callbacks.on_job_start(config=composed, task_function=task)
            ended.return_value = task(own)
        callbacks.on_job_end(config=composed, job_return=ended)
        return ended
    finally:
        current.cfg = before
        os.chdir(started_in)


def _task(
    line: CommandLine, failed: list[Exception], *, quiet: bool, progress: bool | None
) -> Callable[[Any], float | None]:
    """Return the command of a line as Hydra's task, from composed settings to the metric that sweeps compare.

    In a sweep a failure is recorded for the table and the sweep continues. In a single run it is put into `failed`,
    which hides it from Hydra: Hydra would print its own line about it.
    """
    verb = line.verb
    assert verb is not None, "a line without a verb is not run"

    def run(composed: Any) -> float | None:
        with hydra_errors.explained(line), of_paths():
            config = typed(composed, settings_of(verb))  # a mistake in it is reported before the command is imported
            result = run_command(verb, config, Session.of_hydra(quiet=quiet, progress=progress))
        return result.metric if isinstance(result, Result) else None

    def task(composed: Any) -> float | None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return job.guarded(run, composed)
        try:
            return run(composed)
        except Exception as error:
            failed.append(error)
            return None

    return task


@contextmanager
def _as_command_line(words: list[str]) -> Iterator[None]:
    """Give Hydra these words, and make it raise errors instead of printing them and exiting with code 1."""
    words_before, errors_before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["lmtool", *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = words_before
        if errors_before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = errors_before
