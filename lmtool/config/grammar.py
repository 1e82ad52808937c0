"""Hydra's grammar of values: reading them, the values of a sweep, and quoting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lmtool.config.options import yaml_files
from lmtool.config.rules import format_value

OPENING, CLOSING = "([{", ")]}"
# Characters that have a backslash before them in the key of a dictionary.
SPECIAL, BACKSLASH = re.compile(r"[\\()\[\]{}:=, \t]"), r"\\\g<0>"


@lru_cache
def parse_value(text: str) -> Any:
    """Parse a value by Hydra's grammar; return an Override, or None on failure."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(f"x={text}")
    except HydraException:
        return None


def split_at_commas(text: str) -> list[str]:
    """Split a text at the commas that are outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote and not parts[-1].endswith("\\") else quote
        elif letter in "'\"" and not parts[-1].strip():
            quote = letter
        elif letter == "," and depth == 0 and not parts[-1].endswith("\\"):
            parts.append("")
            continue
        depth = max(0, depth + (letter in OPENING) - (letter in CLOSING)) if not quote else depth
        parts[-1] += letter
    parts = text.split(",") if quote or depth else parts  # an apostrophe or a bracket in a name
    return [part.strip() for part in parts]


def sweep_values(key: str, text: str, folders: Sequence[Path] = ()) -> list[str] | None:
    """Return the values that a text tries in a sweep, in Hydra's grammar; None for one value or an interval."""
    from hydra.core.override_parser.types import Glob

    override = parse_value(text)
    if override is None or not override.is_sweep_override():
        return None
    value = override.value()
    if isinstance(value, Glob):
        return value.filter(list(yaml_files(key, folders)))
    return list(override.sweep_string_iterator()) if override.is_discrete_sweep() else None


def quote_interpolated(text: str) -> str:
    """Return text as a quoted value of Hydra's grammar, in which `${...}` stays an interpolation.

    Within quotes, only a quote and the backslashes before it are special.
    """
    text = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text)
    return "'" + text.replace("'", "\\'") + "'"


def escape_interpolation(text: str) -> str:
    """Escape `${` in a text, so that OmegaConf does not read it as an interpolation."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def quote_text(text: str) -> str:
    """Return any text as a quoted value of Hydra's grammar."""
    return quote_interpolated(escape_interpolation(text))


def override_key(word: str) -> str:
    """Return the key of an override, without the marks for adding and leaving out."""
    return word.lstrip("+~").partition("=")[0]


def to_hydra_text(value: Any) -> str:
    """Return a plain value, whose text is as OmegaConf reads it, in Hydra's grammar."""
    if isinstance(value, str):
        return quote_interpolated(value)
    if isinstance(value, list):
        return f"[{','.join(map(to_hydra_text, value))}]"
    if isinstance(value, dict):
        return (
            f"{{{','.join(f'{SPECIAL.sub(BACKSLASH, name)}:{to_hydra_text(item)}' for name, item in value.items())}}}"
        )
    return format_value(value)
