"""The wording of mistakes in settings: unknown keys and options, YAML files that do not compose, too little memory.

A mistake is worded once, after the fact, from the request, what its options compose to, the dataclasses, and the file
and line that set a key.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError
from yaml.reader import ReaderError

from lmtool.cli.help_pages import PLUGINS
from lmtool.cli.unknown_keys import describe_unknown_hydra_key, describe_unknown_key, describe_unused_group
from lmtool.commands import verb_setting_types
from lmtool.config.compose import Composition, UnknownKeyError, compose_usable
from lmtool.config.options import EXPERIMENT, conf_dir, option_sources, yaml_files
from lmtool.config.request import Request, is_hydra_key
from lmtool.config.settings import SettingError, describe_config_error, find_whole_key
from lmtool.config.yaml_files import (
    find_line,
    read_option,
    read_yaml,
    read_yaml_text,
    require_experiment,
)
from lmtool.errors import UserError
from lmtool.system.terminal import nearest, size_text

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # errors of writing to an open file, naming no file
# Messages of torch, which has an exception type for GPUs only, and of the system's loader when memory runs out.
NO_MEMORY = re.compile(
    r"can't allocate memory|Cannot allocate memory|not enough memory|out of memory|size calculation overflowed"
    r"|failed to map segment|bad_alloc|can't start new thread"
)


def explain_compose_error(error: BaseException, request: Request) -> UserError | None:
    """Return the one-line form of an error in composing the options of a request; None for any other error."""
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, UserError):
            return cause
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return UserError(_explain_missing_option(cause.missing_cfg_file, list(cause.options or []), request))
        if isinstance(cause, YAMLError):
            return UserError(_explain_yaml_syntax(cause))
    if isinstance(error, UnicodeDecodeError | OSError):
        for path in user_yaml_files(request):
            with suppress(YAMLError):
                value = yaml.safe_load(read_yaml_text(path))  # raises UserError for a file that is not UTF-8
                if not isinstance(value, dict | None):
                    return UserError(f"{path} holds {type(value).__name__}, not settings: write lines of KEY: VALUE")
    if isinstance(error, RecursionError):
        return UserError("the defaults lists of the YAML files lead in a circle: a file of --config-dir names itself")
    if isinstance(error, HydraException | OmegaConfBaseException | ValueError):
        config_error = next((cause for cause in chain if isinstance(cause, OmegaConfBaseException)), None)
        message = describe_config_error(config_error) if config_error else _join_messages(chain)
        return UserError(_explain_wrong_group(request) or message)
    if isinstance(error, AttributeError | TypeError | KeyError | AssertionError):
        reason = str(error).strip().partition("\n")[0]
        return UserError(f"Hydra cannot compose {' '.join(request.words())}: {reason or type(error).__name__}")
    return None


def explain_sweep_error(error: Exception, request: Request) -> UserError | None:
    """Return the one-line form of an error in Hydra's part of a sweep; None for any other error."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in NO_SPACE:
            return explain_folder_error(cause)
    is_hydras_own = isinstance(error, UserError | HydraException | OmegaConfBaseException)
    return explain_compose_error(error, request) if is_hydras_own else None


def explain_values_error(error: Exception, composition: Composition) -> UserError | None:
    """Return the one-line form of an error in setting a request's values; None for any other error."""
    request = composition.request
    if isinstance(error, UnknownKeyError):
        key = str(error)
        if is_hydra_key(key):
            return UserError(describe_unknown_hydra_key(key, error.__cause__, request))
        value = request.values[key]
        value_text = repr(value) if request.python else str(value)
        return UserError(describe_unknown_key(key, value_text, [composition], python=request.python))
    if isinstance(error, OmegaConfBaseException):
        return UserError(prefix_place(describe_config_error(error), find_whole_key(error), composition))
    return None


def explain_folder_error(error: OSError) -> UserError:
    """Return the error for an output folder that cannot be made or written to."""
    return UserError(
        f"cannot use {error.filename or 'the output folder'}: {error.strerror}; choose another folder, e.g. out=FOLDER"
    )


@contextmanager
def translate_errors(composition: Composition) -> Iterator[None]:
    """Raise UserError for the errors of a command: for a wrong setting, with the YAML file and line of the mistake
    unless the request has it; and if memory runs out.
    """
    try:
        yield
    except SettingError as error:
        raise UserError(prefix_place(str(error), error.key, composition)) from error
    except (MemoryError, RuntimeError, ImportError) as error:  # raised by numpy and Python; by torch; by the loader
        if not isinstance(error, MemoryError) and not NO_MEMORY.search(str(error)):
            raise
        size = ""
        if amount := re.search(r"allocate ([\d.]+) ?(bytes|[KMGTPE]iB)", str(error)):
            number, unit = amount[1].rstrip("."), amount[2]
            needed = size_text(int(number)) if unit == "bytes" else f"{number} {unit}"
            size = f" ({needed} more were needed)"
        raise UserError(
            f"not enough memory{size}: choose a smaller model or a shorter model.context_size, a smaller "
            "training.batch_size or data.vocabulary.size, or, for n-grams, set counts.memory"
        ) from error


def _explain_missing_option(missing: str, options: list[str], request: Request) -> str:
    """Word a file that composing does not find; `missing` is its group and name."""
    chosen = next((pair for pair in request.choices.items() if "/".join(pair) == missing), None)
    group, option = chosen or missing.rpartition("/")[::2]
    extra = PLUGINS.get(group, {}).get(option)
    if extra is not None:
        return f'{group}={option} is not installed: pip install "lmtool[{extra}]"'
    if not group:
        return f"no configuration {missing!r}{nearest(option, options)}"
    message = f"no {group}={option}{nearest(option, options)}"
    if not group.startswith("hydra/"):
        try:
            read_option(group, option, request.folders)
        except UserError as error:
            message = str(error)
    place = None if chosen else _find_default_place(option, request)
    return f"{place}: {message}" if place else message


def _explain_wrong_group(request: Request) -> str | None:
    """Return what is wrong with the groups of a request and of its YAML files, or None if nothing is."""
    for path in user_yaml_files(request):
        for group, option in read_yaml(path).groups.items():
            if option != "..." and not group.startswith("hydra/"):
                try:
                    read_option(group, option, request.folders)
                except UserError as error:
                    place = _find_default_place(option, request)
                    return f"{place}: {error}" if place else str(error)
    with suppress(HydraException, OmegaConfBaseException, ValueError, RecursionError):
        verb_types = verb_setting_types(request.verb)
        composition, unusable = compose_usable(request, verb_types)
        name = request.choices.get(f"+{EXPERIMENT}", "").strip("'")
        files = yaml_files(EXPERIMENT, request.folders)
        if name in files:
            try:
                require_experiment(files[name], set(composition.groups))
            except UserError as error:
                return str(error)
        others = " ".join(f"{group}={option}" for group, option in request.choices.items() if not group.startswith("+"))
        if f"+{EXPERIMENT}" in unusable and others:
            with suppress(Exception):  # if it composes alone
                Composition(replace(request, choices={f"+{EXPERIMENT}": name}, values={}, removed=[]), verb_types)
                return f"+{EXPERIMENT}={name} does not go together with {others}: leave one of them out"
        for group, option in unusable.items():
            if group not in composition.groups and group != f"+{EXPERIMENT}":
                return describe_unused_group(group.lstrip("+"), option, composition)
    return None


def prefix_place(message: str, key: str, composition: Composition) -> str:
    """Put before a message the file and line that set a key, unless the request does."""
    for request_key in (name.lstrip("+") for name in composition.request.values):
        if request_key == key or key.startswith((f"{request_key}.", f"{request_key}[")):
            return message
    place = _find_place(key, composition)
    return f"{place}: {message}" if place else message


def _find_place(key: str, composition: Composition) -> str | None:
    """Return FILE:LINE of a setting that is taken from a YAML file, the last one merged first."""
    request, key = composition.request, key.partition("[")[0]
    folders = request.folders
    experiments = yaml_files(EXPERIMENT, folders)
    name = request.choices.get(f"+{EXPERIMENT}", "").strip("'")
    files = [(experiments[name], "")] if name in experiments else []
    for group, option in composition.groups.items():
        group_files, options = yaml_files(group, folders), [option]
        for each in options:  # and the files that it is based on
            if each in group_files:
                files.append((group_files[each], f"{group}."))
                options += [base for base in read_yaml(group_files[each]).bases if base not in options]
    files += [(conf_dir() / f"{each}.yaml", "") for each in (request.config_name or request.verb, "common")]
    for path, prefix in files:
        line = find_line(path, key.removeprefix(prefix).split(".")) if key.startswith(prefix) else None
        if line is not None:
            return f"{path}:{line}"
    return None


def _find_default_place(option: str, request: Request) -> str | None:
    """Return FILE:LINE of an option in the defaults lists of the user's YAML files; None if it is not found."""
    for path in user_yaml_files(request):
        line = find_line(path, ["defaults", option])
        if line is not None:
            return f"{path}:{line}"
    return None


def user_yaml_files(request: Request) -> Iterator[Path]:
    """Yield the YAML files of user folders."""
    for top in [*request.folders, *(place.folder for place in option_sources())]:
        yield from sorted(top.rglob("*.yaml"))


def _explain_yaml_syntax(error: YAMLError) -> str:
    """Return the message of an error in a YAML file, with file and line."""
    mark = error.problem_mark or error.context_mark if isinstance(error, MarkedYAMLError) else None
    if mark is None or not isinstance(error, MarkedYAMLError):
        file = os.path.relpath(error.name) if isinstance(error, ReaderError) else "a YAML file"
        return f"{file}: {_join_messages([error])}: correct this YAML file"
    reason = ", ".join(" ".join(part.split()) for part in (error.context, error.problem) if part)
    return f"{os.path.relpath(mark.name)}:{mark.line + 1}: {reason}: correct this YAML file"


def _join_messages(chain: list[BaseException]) -> str:
    """Join a chain of errors in one line."""
    return "; ".join(dict.fromkeys(" ".join(str(cause).split()) for cause in chain if str(cause).strip()))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
