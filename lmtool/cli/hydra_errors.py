"""Hydra's and OmegaConf's errors in one line that names the key, the value and the valid names.

The mistake is found from the error's type, attributes and causes, and from the command line itself.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError
from yaml.reader import ReaderError

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import (
    PLUGINS,
    NoOptionError,
    chosen_groups,
    config_dir_of,
    require_option,
)
from lmtool.cli.line_settings import LineSettings
from lmtool.cli.suggestions import unknown_key
from lmtool.config.options import places
from lmtool.config.overrides import key_of, unreadable
from lmtool.config.settings import SettingError, error_line, keys_beside, whole_key
from lmtool.config.yaml_files import text_of
from lmtool.errors import UserError
from lmtool.system.terminal import nearest, size_text

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # errors of writing to an open file, naming no file
# Messages of torch, which has an exception type for GPUs only, and of the system's loader when memory runs out.
NO_MEMORY = re.compile(
    r"can't allocate memory|Cannot allocate memory|not enough memory|out of memory|size calculation overflowed"
    r"|failed to map segment|bad_alloc|can't start new thread"
)


def as_user_error(error: BaseException, line: CommandLine, *, composing: bool = True) -> UserError | None:
    """Return the one-line form of an error in composing a line, or None for any other error.

    composing: whether nothing has run yet, so that Python's own errors are about YAML files too.
    """
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, UserError):
            return cause
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return UserError(_unknown_option(cause.missing_cfg_file, list(cause.options or []), line))
        if isinstance(cause, OverrideParseException):
            return unreadable(cause.override)
        if isinstance(cause, YAMLError):
            return UserError(_yaml_syntax(cause))
        # Hydra writes its files for each job of a sweep, too.
        if isinstance(cause, OSError) and ((composing and cause.filename is not None) or cause.errno in NO_SPACE):
            return UserError(
                f"cannot use {cause.filename or 'the output folder'}: {cause.strerror}; choose another folder, as "
                "hydra.run.dir=FOLDER"
            )
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return _unreadable_yaml(error, line) if composing else None
    for cause in chain:
        if isinstance(cause, ConfigAttributeError | ConfigKeyError):
            return UserError(_unknown_key(cause, line))
    message = _wrong_group(line) if isinstance(error, ConfigCompositionException) else None
    if message is not None:
        return UserError(message)
    for cause in chain:
        if isinstance(cause, OmegaConfBaseException):
            return UserError(_placed(error_line(cause), whole_key(cause), line))
    return UserError(_joined(chain))


@contextmanager
def explained(line: CommandLine) -> Iterator[None]:
    """Raise UserError for the errors of a line's command: for a wrong setting, with what was meant on the line, or the
    YAML file and line of the mistake; and if memory runs out.
    """
    try:
        yield
    except SettingError as error:
        raise UserError(_placed(str(error), error.key, line)) from error
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


def _placed(message: str, key: str, line: CommandLine) -> str:
    """Prefix a message with the file and line that set a key, unless the command line does."""
    for word in line.overrides:
        given = key_of(word)
        if given == key or key.startswith(f"{given}[") or (key.startswith(f"{given}.") and "={" in word):
            return message
    place = LineSettings(line).place_of(key)
    return f"{place}: {message}" if place else message


def _yaml_syntax(error: YAMLError) -> str:
    """Return the message of an error in a YAML file, with file and line."""
    mark = error.problem_mark or error.context_mark if isinstance(error, MarkedYAMLError) else None
    if mark is None or not isinstance(error, MarkedYAMLError):
        file = os.path.relpath(error.name) if isinstance(error, ReaderError) else "a YAML file"
        return f"{file}: {_joined([error])}: correct this YAML file"
    reason = ", ".join(" ".join(part.split()) for part in (error.context, error.problem) if part)
    return f"{os.path.relpath(mark.name)}:{mark.line + 1}: {reason}: correct this YAML file"


def _joined(chain: list[BaseException]) -> str:
    """Join a chain of errors in one line."""
    return "; ".join(dict.fromkeys(" ".join(str(cause).split()) for cause in chain if str(cause).strip()))


def _unreadable_yaml(error: BaseException, line: CommandLine) -> UserError | None:
    """Convert a Python error that Hydra raises while it reads the YAML files; return None for any other error."""
    if isinstance(error, UnicodeDecodeError | OSError):
        for path in user_files(line):
            with suppress(YAMLError):
                value = yaml.safe_load(text_of(path))  # raises UserError for a file that is not UTF-8
                if not isinstance(value, dict | None):
                    return UserError(f"{path} holds {type(value).__name__}, not settings: write lines of KEY: VALUE")
    if isinstance(error, RecursionError):
        return UserError("the defaults lists of the YAML files lead in a circle: a file of --config-dir names itself")
    if isinstance(error, ValueError):
        return UserError(_wrong_group(line) or _joined(list(_chain(error))))
    if isinstance(error, AttributeError | TypeError | KeyError | AssertionError):
        reason = str(error).strip().partition("\n")[0]
        return UserError(f"Hydra cannot compose {' '.join(line.words)}: {reason or type(error).__name__}")
    return None


def user_files(line: CommandLine) -> Iterator[Path]:
    """Yield the YAML files of user folders."""
    folder = config_dir_of(line.words)
    for top in [*([folder] if folder else []), *(place.folder for place in places())]:
        yield from sorted(top.rglob("*.yaml"))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def _unknown_option(missing: str, options: list[str], line: CommandLine) -> str:
    given = ((key_of(word), word.partition("=")[2]) for word in line.overrides)  # a value may have slashes, as a path
    parts = next((parts for parts in given if "/".join(parts) == missing), None)
    group, option = parts or missing.rpartition("/")[::2]
    extra = PLUGINS.get(group, {}).get(option)
    if extra is not None:
        return f'{group}={option} is not installed: pip install "lmtool[{extra}]"'
    if not group:
        return f"no configuration {missing!r}{nearest(option, options)}"
    if not group.startswith("hydra/"):
        try:
            require_option(group, option, line.words)
        except NoOptionError as error:
            return _without_option(error, line)
    return f"no {group}={option}{nearest(option, options)}"


def _unknown_key(error: OmegaConfBaseException, line: CommandLine) -> str:
    """Describe a key that composed settings lack."""
    key = str(error.full_key or error.key)
    words = [word for word in line.overrides if key_of(word) == key or key_of(word).startswith(f"{key}.")]
    whole = key_of(words[0]) if words else key
    for part in ("launcher", "sweeper"):
        chosen = any(word.startswith(f"hydra/{part}=") for word in line.overrides)
        if whole.startswith(f"hydra.{part}.") and not chosen:
            options = ", ".join(option for option, extra in PLUGINS[f"hydra/{part}"].items() if extra)
            return f"no key {whole!r} with hydra/{part}=basic; choose one of {options} too"
    if words:
        return unknown_key(words[0], LineSettings(line), keys_beside(error))
    return _placed(f"no key {whole!r}{nearest(whole.rpartition('.')[2], keys_beside(error))}", whole, line)


def _wrong_group(line: CommandLine) -> str | None:
    """Return what is wrong with the groups of a line and its YAML files, or None if nothing is."""
    assert line.verb is not None, "a line without a verb is not composed"
    try:
        chosen_groups(line.verb, line.words)
    except NoOptionError as error:
        return _without_option(error, line)
    return None


def _without_option(error: NoOptionError, line: CommandLine) -> str:
    """Return the message for a missing option, with the YAML file and line naming it unless the command line does."""
    given = [word.partition("=")[2] for word in line.overrides if key_of(word) == error.group]
    if any(error.option in value.split(",") for value in given):
        return str(error)
    place = LineSettings(line).place_of_default(error.option)
    return f"{place}: {error}" if place else str(error)
