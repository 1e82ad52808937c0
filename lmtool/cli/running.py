"""Compose the settings of a request, or of the jobs of a sweep; run a request once, in its folder."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log, env_override
from omegaconf import DictConfig, OmegaConf, open_dict

from lmtool.cli import mistakes
from lmtool.cli.allowed import require_allowed_settings
from lmtool.commands import run_command, settings_of, verb_setting_types
from lmtool.config.compose import Composition, verb_settings
from lmtool.config.grammar import escape_interpolation, sweep_values
from lmtool.config.options import EXPERIMENT, GROUP_MODULES
from lmtool.config.request import OUT, Request
from lmtool.config.rules import require_folder
from lmtool.config.settings import SettingError, build_settings
from lmtool.config.yaml_files import choose_options, require_bounded_aliases
from lmtool.errors import UserError, first_line, translate_path_errors
from lmtool.results import Result
from lmtool.runs.resume import REQUEST, save_request
from lmtool.session import Session, on_terminal
from lmtool.system.terminal import write_out


def compose_options(request: Request, *, may_leave_out: bool = False) -> Composition:
    """Compose the options of a request. may_leave_out: whether choices of groups that are not used are left out."""
    for path in mistakes.user_yaml_files(request):
        require_bounded_aliases(path)
    try:
        composition = Composition(request, verb_setting_types(request.verb))
        composition.groups  # noqa: B018  # raises for a configuration that is not made of settings
        return composition
    except Exception as error:
        user_error = mistakes.explain_compose_error(error, request)
        if user_error is None:
            raise
        unused = _unused_groups(request)
        if not unused:
            raise user_error from error
    choices = {group: option for group, option in request.choices.items() if group not in unused}
    composition = compose_options(replace(request, choices=choices))
    if not may_leave_out:
        raise UserError(mistakes.describe_unknown_key(unused[0], [composition]))
    return composition


def _unused_groups(request: Request) -> list[str]:
    """Return the chosen groups that the defaults lists do not use; none if an option does not exist."""
    with suppress(UserError):
        used = choose_options(request.verb, request.choices, request.folders)
        return [group for group in request.choices if not is_special(group) and group not in used]
    return []


def is_special(group: str) -> bool:
    """Return whether a group is Hydra's own, in another package or an experiment."""
    return re.search(r"[/@+]", group) is not None


def compose_jobs(request: Request, optional_keys: Collection[str] = ()) -> list[Composition]:
    """Compose as many of a sweep's jobs as it takes to have each option that any of its jobs uses; the first job first.

    A choice of a group that a job does not use is left out of it. optional_keys: groups that no job needs to have.
    """
    experiment = f"+{EXPERIMENT}"
    names = sweep_values(EXPERIMENT, request.choices.get(experiment, ""), request.folders) or []
    requests = [replace(request, choices=request.choices | {experiment: name}) for name in names] or [request]
    may_leave_out = bool(names or optional_keys)
    jobs = [job for each in requests for job in _compose_job_of_each_option(each, may_leave_out)]
    for group in request.choices:
        if not (is_special(group) or group in optional_keys or any(group in job.groups for job in jobs)):
            raise UserError(mistakes.describe_unknown_key(group, jobs))
    return jobs


def _compose_job_of_each_option(request: Request, may_leave_out: bool) -> list[Composition]:
    """Compose a job with the first option of each group, and one for each other option of a group that a job uses."""
    values = {group: sweep_values(group.lstrip("+"), text, request.folders) for group, text in request.choices.items()}
    options = {group: names for group, names in values.items() if names}
    choices_of_jobs = [request.choices | {group: names[0] for group, names in options.items()}]

    def compose(choices: dict[str, str]) -> Composition:
        return compose_options(replace(request, choices=choices), may_leave_out=may_leave_out or bool(options))

    jobs = [compose(choices_of_jobs[0])]
    waiting = {group: names[1:] for group, names in options.items()}
    for job, choices in zip(jobs, choices_of_jobs, strict=False):  # which grow by the other options of each group
        for group in list(waiting):
            if group in job.groups or "/" in group:  # in the first job that has the group
                others = [choices | {group: name} for name in waiting.pop(group)]
                choices_of_jobs += others
                jobs += map(compose, others)
    return jobs


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
    hydra_settings, started_in = settings.hydra, os.getcwd()
    if hydra_settings.callbacks:
        raise UserError("hydra.callbacks: Hydra calls them in sweeps (-m); leave them out of a single run")
    with resolve_hydra_by(settings), ExitStack() as stack:
        folder = stack.enter_context(_make_output_folder(request, settings))
        with open_dict(hydra_settings):
            hydra_settings.runtime.output_dir = folder
        stack.callback(os.chdir, started_in)
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
    """
    request = composition.request
    with mistakes.translate_errors(composition), translate_path_errors():
        values = build_settings(verb_settings(settings), settings_of(request.verb))
        choices = {group: option for group, option in composition.groups.items() if group in GROUP_MODULES}
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
        if named or settings_of(request.verb).makes:
            raise mistakes.explain_folder_error(error) from error
        write_out(f"note: {folder} cannot be made ({error.strerror}): the result is printed, not kept\n")
        with tempfile.TemporaryDirectory(prefix="lmtool-") as temporary:
            yield temporary
    else:
        yield os.path.abspath(folder)


def discard_output_of_higher_ranks(request: Request) -> Request:
    """Return this process's request; higher ranks get a temporary output folder, removed when the process ends."""
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
