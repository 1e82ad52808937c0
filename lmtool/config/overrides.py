"""Overrides in Hydra's grammar, `key=value`: quoting and parsing."""

from __future__ import annotations

import re

from lmtool.errors import UserError


def unreadable(override: str | None) -> UserError:
    """What is said of a word that is not an override."""
    return UserError(f"cannot read {override!r}: write key=value, and a list as key=[a,b]")


def escaped(text: str) -> str:
    """A text as a value of OmegaConf's, with `${`, which would begin an interpolation, escaped."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def quoted(text: str) -> str:
    """Any text as a quoted value of the grammar.

    Within quotes, only a quote and the backslashes before it are special.
    """
    return in_quotes(escaped(text))


def in_quotes(text: str) -> str:
    """Text as a quoted value of the grammar, in which `${...}` stays an interpolation."""
    text = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text)
    return "'" + text.replace("'", "\\'") + "'"


def key_of(override: str) -> str:
    """The key of an override, without the marks of adding and deleting."""
    return override.lstrip("+~").partition("=")[0]


def value_of(override: str) -> str:
    """The value of an override as text, without its quotes and escapes; empty for null; an interpolation as it is.

    Raises UserError for what is not an override.
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
        return override.partition("=")[2]  # a number, a list, a choice of several
    try:
        value = OmegaConf.create({"value": parsed})["value"]
    except OmegaConfBaseException:
        return str(parsed)
    return "" if value is None else str(value)
