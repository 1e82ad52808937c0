"""Overrides in Hydra's grammar, `key=value`: quoting and parsing."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from lmtool.config.options import yaml_files
from lmtool.errors import UserError


def unreadable(override: str | None) -> UserError:
    """Return the error for a word that is not an override."""
    _, _, value = (override or "").partition("=")
    if value.startswith("{") and value.endswith("}"):
        return UserError(
            f"cannot read {override!r}: quote paths with brackets, commas or colons, as {{a: 'x[01].txt'}}"
        )
    return UserError(f"cannot read {override!r}: write key=value, and a list as key=[a,b]")


def escaped(text: str) -> str:
    """Escape `${` in a text, so that OmegaConf does not read it as an interpolation."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def quoted(text: str) -> str:
    """Return any text as a quoted value of Hydra's grammar.

    Within quotes, only a quote and the backslashes before it are special.
    """
    return in_quotes(escaped(text))


def in_quotes(text: str) -> str:
    """Return text as a quoted value of Hydra's grammar, in which `${...}` stays an interpolation."""
    text = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text)
    return "'" + text.replace("'", "\\'") + "'"


def key_of(override: str) -> str:
    """Return the key of an override, without the prefixes for adding and deleting."""
    return override.lstrip("+~").partition("=")[0]


def swept_values(override: str, beside: Path | None = None) -> list[str] | None:
    """Return the values that an override tries in a sweep, in Hydra's grammar; None for one value or an interval.

    beside: the folder of --config-dir, whose options glob() matches too.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    with suppress(HydraException):  # which composing reports
        parsed = OverridesParser.create().parse_override(override)
        value = parsed.value()
        if isinstance(value, Glob):
            return value.filter(list(yaml_files(key_of(override), [beside] if beside else [])))
        if parsed.is_discrete_sweep():
            return list(parsed.sweep_string_iterator())
    return None


def plain_value(override: str) -> str | int | float | None:
    """Return the value of a readable override as a number, truth value, null or text; a list as it is written."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    value = OverridesParser.create().parse_override(override).value()
    return value if value is None or isinstance(value, str | int | float) else override.partition("=")[2]


def value_of(override: str) -> str:
    """Return the value of an override as text without quotes and escapes; empty for null. Interpolations are kept.

    Raises UserError if `override` is not an override.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        parsed = OverridesParser.create().parse_override(override).value()
    except HydraException as error:
        raise unreadable(override) from error
    if parsed is not None and not isinstance(parsed, str):
        return override.partition("=")[2]  # a number, a list, or several values to choose from
    try:
        value = OmegaConf.create({"value": parsed})["value"]
    except OmegaConfBaseException:
        return str(parsed)
    return "" if value is None else str(value)
