"""Run the request of a command line: once, as a sweep, or only to show its settings."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log, env_override
from omegaconf import DictConfig, OmegaConf, open_dict

from lmtool.cli import mistakes
from lmtool.cli.arguments import CommandLine
from lmtool.cli.words import requested
from lmtool.commands import own_types, run_command, settings_of
from lmtool.config.compose import Composition, choices_of, in_quotes, own_part
from lmtool.config.request import OUT, Request
from lmtool.config.rules import require_folder
from lmtool.config.settings import typed
from lmtool.errors import UserError, of_paths
from lmtool.runs.resume import save_request
from lmtool.session import Session, on_terminal
from lmtool.sweeps import sweep
from lmtool.system.process import require_environment
from lmtool.system.terminal import write_out

MADE_OF_FILES = ("train", "ensemble", "distil", "convert", "report")  # verbs whose result is their output folder
BY_HYDRA = ("--info", "-i", "--hydra-help", "--shell-completion", "-sc", "--experimental-rerun")


def run_line(line: CommandLine) -> int:
    """Run a command line and return its exit code.

    Raises UserError for a mistake in the settings, and whatever the command raises.
    """
    logging.raiseExceptions = False  # no traceback for logging to a closed terminal or pipe
    require_environment()
    line = only_the_first_writes(line)
    request = requested(line)
    if any(line.has_flag(flag) for flag in BY_HYDRA):
        return sweep.by_hydra(line.words, lambda _: None)
    if (part := line.flag("--cfg", "-c")) is not None:
        return _show(request, part, line.flag("--package", "-p"), resolve=line.has_flag("--resolve"))
    if request.sweep:
        return run_sweep(request)
    run_once(request)
    return 0


def composed(request: Request) -> tuple[Composition, DictConfig]:
    """Compose a request: its options, and its settings with all values. Raises UserError for a mistake."""
    composition = mistakes.composed(request, own_types(request.verb))
    try:
        return composition, composition.settings()
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
        if package is not None:
            print(f"# @package {package}")
            shown = OmegaConf.select(shown, package)
        write_out(OmegaConf.to_yaml(shown, resolve=resolve) if OmegaConf.is_config(shown) else f"{shown}\n")
    return 0


@contextmanager
def _as_current(settings: DictConfig) -> Iterator[None]:
    """Resolve ${hydra:...} in the block by these settings."""
    current = HydraConfig.instance()
    before = current.cfg
    try:
        current.set_config(settings)
        yield
    finally:
        current.cfg = before


def run_once(request: Request) -> Any:
    """Run a request in its output folder, with its log and the files of its settings there; return the result."""
    composition, settings = composed(request)
    of_hydra = settings.hydra
    with mistakes.explained(composition), _as_current(settings), ExitStack() as stack:
        folder = stack.enter_context(_output_folder(request, settings))
        with open_dict(of_hydra):
            of_hydra.runtime.output_dir = folder
        HydraConfig.instance().set_config(settings)
        started_in = os.getcwd()
        stack.callback(os.chdir, started_in)
        try:
            if of_hydra.job.chdir:
                os.chdir(folder)
            configure_log(of_hydra.job_logging, of_hydra.verbose)
            if of_hydra.output_subdir is not None:
                _save(request, settings, Path(folder, of_hydra.output_subdir))
        except OSError as error:
            raise mistakes.of_folder(error) from error
        with env_override(of_hydra.job.env_set), of_paths():
            config = typed(own_part(settings), settings_of(request.verb))
            session = Session(
                out=Path(folder),
                request=request,
                choices=choices_of(of_hydra),
                progress=on_terminal(),
                keeps=folder == os.path.join(started_in, of_hydra.run.dir),
            )
            return run_command(request.verb, config, session)


def _save(request: Request, settings: DictConfig, folder: Path) -> None:
    """Write the files that Hydra's users expect in a run, and the request."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"config": own_part(settings), "hydra": OmegaConf.masked_copy(settings, ["hydra"])}
    for name, values in (parts | {"overrides": settings.hydra.overrides.task}).items():
        (folder / f"{name}.yaml").write_text(OmegaConf.to_yaml(values), encoding="utf-8")
    save_request(folder, request)


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
        if named or request.verb in MADE_OF_FILES or settings.get("nbest"):
            raise mistakes.of_folder(error) from error
        write_out(f"note: {folder} cannot be made ({error.strerror}): the result is printed, not kept\n")
        with tempfile.TemporaryDirectory(prefix="lmtool-") as temporary:
            yield temporary
    else:
        yield os.path.abspath(folder)


def only_the_first_writes(line: CommandLine) -> CommandLine:
    """Return this process's line; higher ranks get a temporary output folder, removed when the process ends.

    Raises UserError for commands that several processes cannot run together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return line
    if line.verb != "train" or line.multirun:
        raise UserError("torchrun starts several processes, which can only train one model together: leave it out")
    if os.environ.get("RANK", "0") == "0":
        return line
    folder = tempfile.mkdtemp(prefix="lmtool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return replace(line, overrides=[*line.overrides, f"out={in_quotes(folder)}", "hydra.output_subdir=null"])
