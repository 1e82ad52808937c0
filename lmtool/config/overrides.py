"""Overrides of Hydra's grammar, `key=value`, as text."""

from __future__ import annotations

import re


def escaped(text: str) -> str:
    """A value of OmegaConf's that means the text itself: `${` would begin an interpolation."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def quoted(text: str) -> str:
    """A value of the grammar that means the text itself, whatever it holds.

    In quotes only a quote and the backslashes before one are special.
    """
    text = re.sub(r"(\\+)(?='|\Z)", r"\1\1", escaped(text))
    return "'" + text.replace("'", "\\'") + "'"


def key_of(override: str) -> str:
    """The key of an override, without the marks of adding and deleting."""
    return override.lstrip("+~").partition("=")[0]


def value_of(override: str) -> str:
    """The value of an override that is a string, without its quotes and escapes; empty for null.

    Raises Hydra's OverrideParseException for what is not an override.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    value = OmegaConf.create({"value": OverridesParser.create().parse_override(override).value()})["value"]
    return "" if value is None else str(value)
