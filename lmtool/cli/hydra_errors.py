"""Hydra's and OmegaConf's errors in one line that names the key, the value and the valid names.

What is wrong is told by the error's type, attributes and causes, and by the command line itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import EXPERIMENT, chosen_groups, config_dir_of, is_group, keys_of, require_option
from lmtool.cli.yaml_text import read
from lmtool.config.overrides import key_of, unreadable
from lmtool.config.settings import error_line, keys_beside
from lmtool.errors import UserError
from lmtool.system.spelling import nearest

# Torch's messages where memory runs out: it has an exception type for GPUs alone.
NO_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|size calculation overflowed")

# Options that Hydra's plugins bring, each with the extra that installs it.
EXTRAS = {
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/submitit_local": "submitit",
    "hydra/launcher/submitit_slurm": "submitit",
    "hydra/sweeper/optuna": "optuna",
}


def as_user_error(error: BaseException, line: CommandLine, *, composing: bool = True) -> UserError | None:
    """The one-line form of an error of composing a line; None for an error of any other kind.

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
        if isinstance(cause, MarkedYAMLError):
            return UserError(f"{' '.join(str(cause).split())}: this YAML file cannot be read: correct it")
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
            return UserError(error_line(cause))
    return UserError(_joined(chain))


def _joined(chain: list[BaseException]) -> str:
    """An error and its causes in one line."""
    return "; ".join(dict.fromkeys(" ".join(str(cause).split()) for cause in chain if str(cause).strip()))


def _unreadable_yaml(error: BaseException, line: CommandLine) -> UserError | None:
    """What Hydra raises as Python's own errors while it reads the YAML files; None for an error of any other kind."""
    if isinstance(error, UnicodeDecodeError):
        folder = config_dir_of(line.words)
        for path in sorted(folder.rglob("*.yaml")) if folder else []:
            read(path)  # raises UserError for the one that it is
    if isinstance(error, RecursionError):
        return UserError("the defaults lists of the YAML files lead in a circle: a file of --config-dir names itself")
    if isinstance(error, ValueError):
        return UserError(_wrong_group(line) or _joined(list(_chain(error))))
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def within_memory(run: Callable[[Any], float | None]) -> Callable[[Any], float | None]:
    """The command, with a UserError in place of the exceptions of numpy, Python and torch where memory runs out."""

    def guarded(composed: Any) -> float | None:
        try:
            return run(composed)
        except (MemoryError, RuntimeError) as error:  # of numpy and Python; of torch
            if not isinstance(error, MemoryError) and not NO_MEMORY.search(str(error)):
                raise
            amount = re.search(r"allocate ([\d.]+) ?(bytes|[KMGTPE]iB)", str(error))
            size = f" ({_size(amount[1], amount[2])} more were needed)" if amount else ""
            raise UserError(
                f"not enough memory{size}: choose a smaller model or a shorter model.context_size, a smaller "
                "training.batch_size or data.vocabulary.size, or, for n-grams, set counts.memory"
            ) from error

    return guarded


def _size(number: str, unit: str) -> str:
    return f"{int(number) / 2**30:,.1f} GiB" if unit == "bytes" else f"{number.rstrip('.')} {unit}"


def _unknown_option(missing: str, options: list[str], line: CommandLine) -> str:
    group, _, option = missing.rpartition("/")
    if missing in EXTRAS:
        return f'{group}={option} is not installed: pip install "lmtool[{EXTRAS[missing]}]"'
    if not group:
        return f"no configuration {missing!r}{nearest(option, options)}"
    if not options and not group.startswith("hydra/"):
        require_option(group, option, line.words)
    return f"no {group}={option}{nearest(option, options)}"


def _unknown_key(error: OmegaConfBaseException, line: CommandLine) -> str:
    """A key that the composed settings do not have."""
    key = str(error.full_key or error.key)
    words = [word for word in line.overrides if key_of(word) == key or key_of(word).startswith(f"{key}.")]
    whole = key_of(words[0]) if words else key
    if "." not in key and is_group(key, line.words) and line.verb is not None:
        return _unused(words or [whole], chosen_groups(line.verb, line.words))
    for part in ("launcher", "sweeper"):
        chosen = any(word.startswith(f"hydra/{part}=") for word in line.overrides)
        if whole.startswith(f"hydra.{part}.") and not chosen:
            options = ", ".join(name.rpartition("/")[2] for name in EXTRAS if name.split("/")[1] == part)
            return f"no key {whole!r} with hydra/{part}=basic; choose one of {options} too"
    return f"no key {whole!r}{nearest(key.rpartition('.')[2], keys_beside(error))}"


def _unused(words: list[str], used: dict[str, str]) -> str:
    chosen = ", ".join(f"{group}={option}" for group, option in used.items())
    return f"{' '.join(words)}: not used with {chosen}"


def _wrong_group(line: CommandLine) -> str | None:
    """What is wrong with the groups that a line names; None where nothing is."""
    assert line.verb is not None, "a line without a verb is not composed"
    used = chosen_groups(line.verb, line.words)
    for word in line.overrides:
        key = key_of(word).partition("@")[0]
        if key in used and word.partition("=")[2] in ("null", ""):
            require_option(key, word.partition("=")[2], line.words)
        if "=" not in word or "." in key or "/" in key or key in used or key in keys_of(line.verb):
            continue
        if key == EXPERIMENT:
            if not word.startswith("+"):
                return f"{key}= must be appended: write +{key}="
        elif is_group(key, line.words):
            return _unused([word], used)
        elif not word.startswith("+"):
            return f"no group {key!r}{nearest(key, [*used, *keys_of(line.verb) - {'hydra'}])}"
    return None
