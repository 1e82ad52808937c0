"""The wording of mistakes in settings: unknown keys and options, YAML files that do not compose, too little memory."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from lmtool.commands import verb_setting_types, verbs
from lmtool.config.composition import Composition, UnknownKeyError
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, PLUGINS, conf_dir, kinds, option_sources, yaml_files
from lmtool.config.request import Request, is_run_control_key
from lmtool.config.settings import SettingError, describe_config_error, find_sibling_keys, find_whole_key
from lmtool.config.types import SettingType, option_types
from lmtool.config.yaml_files import normalize_name, read_option, read_yaml, read_yaml_text
from lmtool.errors import UserError
from lmtool.requests.synonyms import MEANINGS
from lmtool.system.terminal import close_words, nearest, size_text

SHOWN = 3  # maximum number of options and verbs in a hint
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # errors of writing to an open file, naming no file
# Messages of torch, which has an exception type for GPUs only, and of the system's loader when memory runs out.
NO_MEMORY = re.compile(
    r"can't allocate memory|Cannot allocate memory|not enough memory|out of memory|size calculation overflowed"
    r"|failed to map segment|bad_alloc|can't start new thread"
)


def describe_unknown_key(key: str, jobs: Sequence[Composition]) -> str:
    """Return a one-line message for a key or group that none of the jobs of a sweep, or the only job, has.

    The key that is meant is searched for among those in use, then among those of other options and verbs: by other
    tools' names for it, by its last part, and by its spelling.
    """
    used = list(dict.fromkeys(name for job in jobs for name in (*job.choices, *job.verb_types, *job.keys())))
    owners = _owners(jobs[0].request.folders)
    if key in owners and ("." in key or not _same_keys(key, used)):
        return f"no key {key!r}; it is a key of {_list_owners(key, owners, used)}"
    if close := _same_keys(key, used):
        return f"no key {key!r}; did you mean {' or '.join(close)}?"
    if close := _same_keys(key, list(owners)):
        return f"no key {key!r}; did you mean {close[0]}? (a key of {_list_owners(close[0], owners, used)})"
    group = f"{key.partition('.')[0]}."
    siblings = {name.removeprefix(group): name for name in used if name.startswith(group)}
    if siblings:
        word, ends = key.removeprefix(group), siblings
    else:
        siblings = {name: name for name in [*used, *[f"+{EXPERIMENT}"] * ("model" in used)] if "." not in name}
        word, ends = key, siblings | {name.rpartition(".")[2]: name for name in used if "." in name} | siblings
    close = list(dict.fromkeys(ends[name] for name in close_words(word, list(ends))))
    return f"no key {key!r}" + (f"; did you mean {' or '.join(close)}?" if close else nearest(word, siblings))


def _owners(folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return all keys and groups, each with the options and verbs that have it."""
    owners: dict[str, list[str]] = {}
    for group in GROUP_MODULES:
        for option in kinds(group):
            keys = [f"{group}.{name}" for name in SettingType(fields=option_types(group, option)).leaves()]
            for key in (*keys, *read_option(group, option, folders).groups):
                owners.setdefault(key, []).append(f"{group}={option}")
    for verb in verbs():
        for key in (*verb_setting_types(verb), *read_yaml(conf_dir() / f"{verb}.yaml").groups):
            owners.setdefault(key, []).append(f"lmtool {verb}")
    return owners


def _list_owners(key: str, owners: dict[str, list[str]], used: Sequence[str]) -> str:
    """Return the options and verbs that have a key; if their group is not in use, those that have the group."""
    names = owners[key]
    usable = [name for name in names if " " in name or name.partition("=")[0] in used]
    group = names[0].partition("=")[0]
    if not usable and group in owners and group != key:
        return _list_owners(group, owners, used)
    names = sorted(usable or names, key=lambda name: (" " in name, len(name.partition("=")[2])))
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _same_keys(key: str, known: Sequence[str]) -> list[str]:
    """Return the known key that another tool's name means, else the outermost ones with the same last part."""
    last = normalize_name(key.rpartition(".")[2])
    meanings = MEANINGS.get(normalize_name(key)) or MEANINGS.get(last) or []
    if found := [name for name in meanings if name in known]:
        return found[:1]
    same = [name for name in known if name != key and normalize_name(name.rpartition(".")[2]) == last]
    return [name for name in same if name.count(".") == min(each.count(".") for each in same)]


def explain_compose_error(error: BaseException, request: Request) -> UserError | None:
    """Return the one-line form of an error in composing the options of a request; None for any other error."""
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, UserError):
            return cause
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return UserError(_explain_missing_option(cause.missing_cfg_file, list(cause.options or []), request))
        if isinstance(cause, YAMLError):
            mark = cause.problem_mark or cause.context_mark if isinstance(cause, MarkedYAMLError) else None
            file = f"{os.path.relpath(mark.name)}:{mark.line + 1}" if mark else "a YAML file"
            parts = (cause.context, cause.problem) if isinstance(cause, MarkedYAMLError) else (str(cause),)
            reason = ", ".join(" ".join(part.split()) for part in parts if part)
            return UserError(f"{file}: {reason}: correct this YAML file")
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
        messages = (" ".join(str(cause).split()) for cause in chain)
        message = describe_config_error(config_error) if config_error else "; ".join(dict.fromkeys(messages))
        experiment = request.choices.get(f"+{EXPERIMENT}")
        return UserError(f"with +{EXPERIMENT}={experiment}: {message}" if experiment else message)
    if isinstance(error, AttributeError | TypeError | KeyError | AssertionError):
        reason = str(error).strip().partition("\n")[0]
        return UserError(f"Hydra cannot compose {' '.join(request.words())}: {reason or type(error).__name__}")
    return None


def explain_sweep_error(error: Exception, request: Request) -> UserError | None:
    """Return the one-line form of an error in Hydra's part of a sweep; None for any other error."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in NO_SPACE:
            return explain_folder_error(cause)
    is_hydra_error = isinstance(error, UserError | HydraException | OmegaConfBaseException)
    return explain_compose_error(error, request) if is_hydra_error else None


def explain_values_error(error: Exception, composition: Composition) -> UserError | None:
    """Return the one-line form of an error in setting a request's values; None for any other error."""
    if isinstance(error, UnknownKeyError):
        key = str(error)
        if is_run_control_key(key):
            return UserError(_describe_unknown_hydra_key(key, error.__cause__, composition.request))
        return UserError(describe_unknown_key(key, [composition]))
    if isinstance(error, OmegaConfBaseException):
        return UserError(prefix_place(describe_config_error(error), find_whole_key(error), composition))
    return None


def _describe_unknown_hydra_key(key: str, error: BaseException | None, request: Request) -> str:
    group = "/".join(key.split(".")[:2])
    if group in PLUGINS.keys() - request.choices.keys():
        options = ", ".join(option for option, extra in PLUGINS[group].items() if extra)
        return f"no key {key!r} with {group}=basic; choose one of {options} too"
    siblings = find_sibling_keys(error) if isinstance(error, OmegaConfBaseException) else []
    hint = nearest(key.rpartition(".")[2], siblings)
    return f"no key {key!r}{hint or f'; to add it write +{key}={request.values.get(key)}'}"


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
    for path in [] if chosen else user_yaml_files(request):
        for number, line in enumerate(read_yaml_text(path).splitlines(), 1):
            if re.match(rf"(defaults:.*|\s*- .*)\b{re.escape(option)}(\W|$)", line):
                return f"{path}:{number}: {message}"
    return message


def prefix_place(message: str, key: str, composition: Composition) -> str:
    """Put before a message the file and line that set a key, unless the request does."""
    request, key = composition.request, key.partition("[")[0]
    if any(key == name.lstrip("+") or key.startswith(f"{name.lstrip('+')}.") for name in request.values):
        return message
    choices = composition.choices
    if experiment := request.choices.get(f"+{EXPERIMENT}", "").strip("'"):
        choices = {EXPERIMENT: experiment} | choices
    files = []
    for group, option in choices.items():
        group_files, options = yaml_files(group, request.folders), [option]
        for name in options:  # which grows by the files that it is based on
            if name in group_files:
                files.append((group_files[name], "" if group == EXPERIMENT else f"{group}."))
                options += [base for base in read_yaml(group_files[name]).bases if base not in options]
    files += [(conf_dir() / f"{each}.yaml", "") for each in (request.verb, "common")]
    for path, prefix in files:
        for setting in read_yaml(path).settings:
            name = prefix + ".".join(setting.path)
            if name == key or (setting.value and key.startswith(f"{name}.")):
                return f"{path}:{setting.line}: {message}"
    return message


def user_yaml_files(request: Request) -> Iterator[Path]:
    """Yield the YAML files of user folders."""
    for top in [*request.folders, *(place.folder for place in option_sources())]:
        yield from sorted(top.rglob("*.yaml"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
