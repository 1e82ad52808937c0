"""Hydra's and OmegaConf's errors, said in one line that names the key, the value and the valid names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from lmtool.cli import help_pages
from lmtool.errors import UserError

# What torch says where there is no memory, on processors and on CUDA.
NO_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|size calculation overflowed")


def as_user_error(error: BaseException, verb: str, words: list[str]) -> UserError | None:
    """The one-line form of an error of composing `words`; None for an error of any other kind."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, AssertionError) and "Unexpected type for root" in str(error):
        # What Hydra 1.3 says of a key below a group that is null, such as optim.lr with model=ngram.
        used = help_pages.chosen_groups(verb, words)
        unused = [word for word in words if "." in word.split("=")[0] and word.split(".")[0] not in used]
        return UserError(f"{' '.join(unused)}: not used by the chosen options of {', '.join(used)}")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return UserError(_unknown_option(error.missing_cfg_file, list(error.options or [])))
    if isinstance(error, OverrideParseException):
        return UserError(
            f"cannot read {error.override!r}: write key=value, with quotes around a value that holds "
            "spaces, commas or brackets"
        )
    if isinstance(error, ConfigCompositionException):
        return UserError(_composition(error, verb, words))
    if isinstance(error, OmegaConfBaseException):
        return UserError(_value(error))
    if isinstance(error, HydraException):
        return UserError(_first_line(error))
    return None


# Options of Hydra's that plugins bring, and the extra that installs each.
EXTRAS = {
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/submitit_local": "submitit",
    "hydra/launcher/submitit_slurm": "submitit",
    "hydra/sweeper/optuna": "optuna",
}


def within_memory(run: Callable[[Any], float | None]) -> Callable[[Any], float | None]:
    """A command that says in one line where memory was not enough for what its settings ask for."""

    def guarded(composed: Any) -> float | None:
        try:
            return run(composed)
        except (MemoryError, RuntimeError) as error:  # of numpy and Python; of torch
            if not isinstance(error, MemoryError) and not NO_MEMORY.search(str(error)):
                raise
            amount = re.search(r"allocate ([\d.]+) ?(bytes|[KMGTPE]iB)", str(error))
            asked = f" ({_size(amount[1], amount[2])} more were asked for)" if amount else ""
            raise UserError(
                f"not enough memory{asked}: choose a smaller model or a shorter model.context_size, a smaller "
                "training.batch_size or data.vocabulary.size, or, for n-grams, set counts.memory"
            ) from error

    return guarded


def _size(number: str, unit: str) -> str:
    return f"{int(number) / 2**30:,.1f} GiB" if unit == "bytes" else f"{number.rstrip('.')} {unit}"


def _unknown_option(missing: str, options: list[str]) -> str:
    group, _, option = missing.rpartition("/")
    if missing in EXTRAS:
        return f'{group}={option} is not installed: pip install "lmtool[{EXTRAS[missing]}]"'
    names = [name for name in options if not name.startswith("schema_")]
    if not group:
        return f"no configuration {missing!r}{help_pages.nearest(option, names)}"
    return f"no {group}={option}{help_pages.nearest(option, names)}"


def _composition(error: ConfigCompositionException, verb: str, words: list[str]) -> str:
    text = str(error)
    group = re.search(r"[Cc]ould not (?:override|find match for) '([^']+)'\.?\s*No match", text)
    if group:
        name = group[1].split("@")[0]
        if name == help_pages.EXPERIMENT:
            return f"{name}= must be appended: write +{name}="
        groups = help_pages.chosen_groups(verb, words)
        if (help_pages.conf_dir() / name).is_dir():
            chosen = ", ".join(f"{key}={option}" for key, option in groups.items())
            return f"{name}= is not used with {chosen}"
        return f"no group {name!r}{help_pages.nearest(name, groups)}"
    key = re.search(r"[Cc]ould not (?:override|append) '([^']+)'|override (\S+?)=", text)
    cause = error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        whole = (key[1] or key[2]) if key else str(cause.full_key or cause.key)
        parent = cause.parent_node
        names = [str(name) for name in parent] if parent is not None and OmegaConf.is_dict(parent) else []
        names = [name for name in names if name != "hydra"]
        if whole.startswith(("hydra.launcher.", "hydra.sweeper.")) and "basic" in str(getattr(parent, "_target_", "")):
            part = whole.split(".")[1]
            options = ", ".join(name.split("/")[2] for name in EXTRAS if name.split("/")[1] == part)
            return f"no key {whole!r} with hydra/{part}=basic; choose one of {options} too"
        last = str(cause.key) if cause.key is not None else whole.rpartition(".")[2]
        return f"no key {whole!r}{help_pages.nearest(last, names)}"
    if isinstance(cause, OmegaConfBaseException):
        return _value(cause, key[1] or key[2] if key else None)
    return _first_line(error)


def _value(error: OmegaConfBaseException, named: str | None = None) -> str:
    key = named or error.full_key or "a setting"
    if isinstance(error, MissingMandatoryValue):
        return f"{key} has no value: give one on the command line, as {key}=..."
    if isinstance(error, ValidationError):
        return f"{key}: {_first_line(error)}"
    return f"{key}: {_first_line(error)}" if key not in _first_line(error) else _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
