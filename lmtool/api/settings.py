"""Convert keyword arguments to overrides, and overrides to the settings of a verb, as on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import EXPERIMENT, config_dir_of
from lmtool.config.options import HOMES, conf_dir
from lmtool.config.overrides import quoted
from lmtool.config.settings import choices_of
from lmtool.errors import UserError

NAME = re.compile(r"[\w.-]+")
MAPPINGS = {"data.train"}  # settings that may be a mapping with custom keys, which is one value


def overrides_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as Hydra overrides.

    For a group of options, a string is the option's name and a dictionary its settings, with the name under "kind";
    other dictionaries are settings by name, at any depth. None is left out at the top and is null within a dictionary.
    Raises UserError for a value that is not a plain value.
    """
    words: list[str] = []
    for key, value in settings.items():
        if value is None:
            continue
        if key == EXPERIMENT:
            words.insert(0, f"+{key}={_name(value)}")
        elif key in HOMES and isinstance(value, str):
            words.append(f"{key}={_name(value)}")
        elif key in HOMES and isinstance(value, Mapping):
            words += [f"{key}={_name(str(value['kind']))}"] if "kind" in value else []
            words += _flat(key, {name: item for name, item in value.items() if name != "kind"})
        elif isinstance(value, Mapping):
            words += _flat(key, value)
        else:
            words.append(f"{key}={literal(value, key)}")
    # Choices of options precede changes of their settings, whatever the order of the arguments.
    return sorted(words, key=lambda word: word.partition("=")[0].lstrip("+") not in (*HOMES, EXPERIMENT))


def _name(value: str) -> str:
    return value if NAME.fullmatch(value) else quoted(value)


def _flat(prefix: str, settings: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        key = f"{prefix}.{name}"
        settings_below = isinstance(value, Mapping) and value and key not in MAPPINGS
        words += _flat(key, value) if settings_below else [f"{key}={literal(value, key)}"]
    return words


def literal(value: Any, key: str) -> str:
    """Return a plain value in Hydra's grammar; text is always quoted. Raises UserError for any other value."""
    if isinstance(value, Enum):
        value = value.value
    elif not isinstance(value, str | int | float | list | tuple) and hasattr(value, "item"):
        value = value.item()  # a NumPy or torch scalar
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(float(value) if isinstance(value, float) else int(value))
    if isinstance(value, str | Path):
        return quoted(str(value))
    if isinstance(value, list | tuple | range):
        return f"[{','.join(literal(item, key) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_name(str(name))}:{literal(item, key)}' for name, item in value.items())}}}"
    raise UserError(f"{key}={value!r}: settings are text, numbers, lists and dictionaries, not {type(value).__name__}")


def compose(line: CommandLine) -> tuple[Any, dict[str, str]]:
    """Compose a command line with Hydra; return the configuration without Hydra's part, and the option of each group.

    Hydra's global state is restored, so that this also works within a Hydra application. Raises UserError, naming the
    key, for a mistake in the line.
    """
    import hydra
    from omegaconf import OmegaConf

    from lmtool.cli import hydra_errors
    from lmtool.cli.hydra_run import VERSION, checked_application, register_option_folders

    assert line.verb is not None, "the callers name it"
    register_option_folders()
    folder = config_dir_of(line.flags)
    words = [*line.overrides, *([f"hydra.searchpath=[{quoted(f'file://{folder}')}]"] if folder else [])]
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base=VERSION):
            checked_application(line, words)
            whole = hydra.compose(line.verb, words, return_hydra_config=True)
    except Exception as error:
        fault = hydra_errors.as_user_error(error, line)
        if fault is None:
            raise
        raise fault from error
    return OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"]), choices_of(whole.hydra)
