"""Run a request once, in its folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log, env_override
from omegaconf import DictConfig, OmegaConf, open_dict

from lmtool.commands import run_command, settings_of
from lmtool.config.composition import Composition, verb_settings
from lmtool.config.options import GROUP_MODULES
from lmtool.config.request import OUT, RUN_DIR, Request
from lmtool.config.rules import require_folder
from lmtool.config.settings import build_settings
from lmtool.errors import UserError, first_line, translate_path_errors
from lmtool.requests import mistakes
from lmtool.requests.compose import compose_request
from lmtool.results import Result
from lmtool.runs.resume import REQUEST, save_request
from lmtool.session import Session, on_terminal
from lmtool.system.terminal import write_out


@contextmanager
def resolve_hydra_by(settings: DictConfig) -> Iterator[None]:
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
    hydra_settings = settings.hydra
    if hydra_settings.callbacks:
        raise UserError("hydra.callbacks: Hydra calls them in sweeps (-m); leave them out of a single run")
    with resolve_hydra_by(settings), ExitStack() as stack:
        folder, keeps_output = stack.enter_context(_make_output_folder(request, settings))
        with open_dict(hydra_settings):
            hydra_settings.runtime.output_dir = folder
        stack.callback(os.chdir, os.getcwd())
        try:
            if hydra_settings.job.chdir:
                os.chdir(folder)
            configure_log(hydra_settings.job_logging, hydra_settings.verbose)
            if hydra_settings.output_subdir is not None:
                write_settings(request, settings, Path(folder, hydra_settings.output_subdir))
        except OSError as error:
            raise mistakes.explain_folder_error(error) from error
        except (ValueError, KeyError) as error:  # of logging, e.g. for its file
            if isinstance(error.__cause__, OSError):
                raise mistakes.explain_folder_error(error.__cause__) from error
            raise UserError(f"hydra.job_logging: {first_line(error)} ({type(error).__name__})") from error
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
    """
    request = composition.request
    with mistakes.translate_errors(composition), translate_path_errors():
        values = build_settings(verb_settings(settings), settings_of(request.verb))
        choices = {group: option for group, option in composition.choices.items() if group in GROUP_MODULES}
        session = Session(folder, request, choices, **session_arguments)
        result = run_command(request.verb, values, session) if command is None else command(values, session)
        if isinstance(result, Result):
            result.notes = session.notes
        return result


def write_settings(
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
def _make_output_folder(request: Request, settings: DictConfig) -> Iterator[tuple[str, bool]]:
    """Make the output folder of a run, and give its path, and whether it is kept.

    If it cannot be made and was not named, a verb that only prints gets a temporary folder.
    """
    folder = str(settings.hydra.run.dir)
    require_folder("out", folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        named = {OUT, RUN_DIR} & request.values.keys()
        if named or settings_of(request.verb).makes:
            raise mistakes.explain_folder_error(error) from error
        write_out(f"note: {folder} cannot be made ({error.strerror}): the result is printed, not kept\n")
        with tempfile.TemporaryDirectory(prefix="lmtool-") as temporary:
            yield temporary, False
    else:
        yield os.path.abspath(folder), True
