"""Conversion of the words of a command line, as typed, to Hydra's grammar by the types of their settings.

`text=ünï.txt`, `text=x=y.txt` and `text=a,b.txt` are paths, `runs=a` is a list of one. A word that Hydra's grammar
reads as a valid value of its setting is left unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from numbers import Number
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import require_option
from lmtool.cli.line_settings import HYDRA_TEXTS, LineSettings, with_current_names
from lmtool.cli.suggestions import unknown_key
from lmtool.config.overrides import in_quotes, quoted, unreadable
from lmtool.config.rules import require_text
from lmtool.config.types import SettingType
from lmtool.errors import UserError

WORD = re.compile(r"(?P<key>\+{0,2}[^+~=][^=]*)=(?P<value>.*)", re.DOTALL)
INTERPOLATION = re.compile(r"\$\{[^}]+\}")
SPAN = re.compile(r"(?P<first>-?\d+) *(\.{2,3}|-|:|to) *(?P<last>-?\d+)")  # how other tools write a range
SWEEP = "a sweep over several values needs -m"
OPENING, CLOSING = "([{", ")]}"


def as_typed(line: CommandLine) -> CommandLine:
    """Quote or bracket the values of a line if their settings need it.

    Raises UserError for several values that are neither a list nor a sweep, and for a list that is not closed.
    """
    line = with_current_names(line, noted=True)
    settings = LineSettings(line)
    return replace(line, overrides=[_word(word, settings, line.multirun) for word in line.overrides])


def _word(word: str, settings: LineSettings, multirun: bool) -> str:
    match = WORD.fullmatch(word)
    if match is None:
        if word.startswith("~"):
            return word  # a deletion
        if "=" in word:
            raise unreadable(word)
        raise UserError(f"{word!r} is no setting: write {_as_setting(word, settings)}")
    if match["key"] != match["key"].strip():
        raise UserError(f"{word!r}: write {match['key'].strip()}={match['value'].strip()}, without spaces around =")
    prefix, text = f"{match['key']}=", match["value"]
    key = match["key"].lstrip("+")
    if not (settings.line.given("resume") or settings.has(word)):
        raise UserError(unknown_key(word, settings))
    if settings.is_group(key):
        return _group(word, key, text, settings, multirun)
    if any(key == f"{group}.kind" for group in settings.groups):
        raise UserError(f"{word}: choose an option by {key.removesuffix('.kind')}={text}")
    known = settings.type_of(key) or SettingType()
    _require_form(word, key, text, known)
    is_prose = known.rule is not None and known.rule.prose  # text to read, not a path
    if not is_prose:
        require_text(key, text)
    if not (is_prose or multirun) and _is_file(os.path.expanduser(text), known):
        return prefix + _quoted(os.path.expanduser(text))
    try:
        expanded = str if is_prose else os.path.expanduser
        return prefix + _in_grammar(word, text, known, multirun and key not in HYDRA_TEXTS, expanded)
    except HydraException:
        raise unreadable(word) from None


def _as_setting(word: str, settings: LineSettings) -> str:
    """Return how to write a word without a key as a setting; a folder is probably a run."""
    if os.path.isdir(word):
        if settings.type_of("run") is not None:
            return f"run={word}"
        if settings.type_of("runs") is not None:
            return f"runs=[{word},...]"
    known = os.sep not in word and (settings.is_group(word) or settings.type_of(word) is not None)
    return f"{word if known else 'key'}=value, without spaces around ="


def _group(word: str, group: str, text: str, settings: LineSettings, multirun: bool) -> str:
    """Check the choice of an option. Raises UserError for several without a sweep, and for an unknown name."""
    override = _parsed(text)
    if override is None:
        require_option(group, text, settings.words)
    elif isinstance(override.value(), list):
        raise UserError(f"{word}: choose one option; to try several, -m {group}={text[1:-1]}")
    elif override.is_sweep_override() and not multirun:
        raise UserError(f"{word}: {SWEEP}")
    return word


def _require_form(word: str, key: str, text: str, type: SettingType) -> None:
    """Raise UserError for a value whose form the setting cannot have."""
    folder = next((name for name in HYDRA_TEXTS if name.startswith(f"{key}.")), None)
    if folder is not None and not text.startswith("{"):
        raise UserError(f"{word}: write {folder}=FOLDER")
    if type.is_free or text.startswith("$"):
        return
    if text.casefold() == "null":
        if "None" not in type.names:
            raise UserError(f"{word}: {key} cannot be null")
    elif type.fields and not text.startswith("{"):
        raise UserError(f"{word}: give {key}.NAME=... a value, NAME being {', '.join(type.fields)}")
    elif type.item is not None and not text.strip():
        raise UserError(f"{word}: write a list, as {key}=[a,b]")
    elif not (type.fields or type.item or type.may_be_text):
        span = SPAN.fullmatch(text)
        low, high = sorted((int(span["first"]), int(span["last"]))) if span else (0, 0)
        several = text[1:-1] if text.startswith("[") else span and f"range({low},{high + 1})"
        if several:
            raise UserError(f"{word}: must be {type.words}; to try several, -m {key}={several}")


def _is_file(text: str, type: SettingType) -> bool:
    """Return whether a path names a file, with ${...}, or, if it may also be a list, with commas or brackets."""
    if INTERPOLATION.search(text):
        return type.may_be_text and os.path.exists(text)
    override = _parsed(text) if type.is_free and type.may_be_text else None
    return override is not None and isinstance(override.value(), ChoiceSweep | list) and os.path.exists(text)


def _in_grammar(word: str, text: str, type: SettingType, multirun: bool, expanded: Callable[[str], str]) -> str:
    """Return the value of a word in Hydra's grammar. multirun: whether commas are a sweep. expanded: applied to each.

    Raises HydraException for an unclosed list or dictionary, and UserError for several values without a sweep.
    """
    parts = [expanded(part) for part in (_split(text) if multirun else [text])]
    text = ",".join(parts)
    override = _parsed(text)
    if text == "" or (override is not None and override.value() is None):
        return text
    if override is not None and override.is_sweep_override():
        sweep = override.value()
        simple = isinstance(sweep, ChoiceSweep) and sweep.simple_form
        if not multirun and not (simple and (type.is_text or type.item)):
            listed = f"several values in one list are [{text.replace(', ', ',')}]; " if type.is_free and simple else ""
            raise UserError(f"{word}: {listed}{SWEEP}")
        if multirun and not simple:
            return text  # a function, such as range(1,4)
    return ",".join(_element(part, type) for part in parts)


def _element(text: str, type: SettingType) -> str:
    """Convert a sweep's value, or the only one."""
    if INTERPOLATION.fullmatch(text):
        return text
    if type.is_text:
        return _as_text(text, null=True)
    if text.startswith("[") and text.endswith("]") and (type.item is not None or type.is_free):
        return _listed(text[1:-1], type.item)
    override = _parsed(text)
    if type.item is not None and not text.startswith("["):
        return text if override is not None and override.value() is None else _listed(text, type.item)
    if override is None and text.startswith(("[", "{")):
        OverridesParser.create().parse_override(f"x={text}")  # raises HydraException
    return _quoted(text) if override is None else text


def _listed(text: str, item: SettingType | None) -> str:
    """Convert comma-separated items of a type to a list in brackets."""
    parts = map(os.path.expanduser, _split(text) if text.strip() else [])
    is_text = item is not None and item.is_text
    items = [_as_text(part, null=False) if is_text or _parsed(part) is None else part for part in parts]
    return f"[{','.join(items)}]"


def _as_text(text: str, *, null: bool) -> str:
    """Convert a string. null: whether null means None."""
    override = _parsed(text)
    value: Any = None if override is None else override.value()
    if override is None or override.is_sweep_override() or isinstance(value, list | dict):
        return _quoted(text)
    if isinstance(value, Number) and str(value) != text:  # 1e3, 1_000, true
        return _quoted(text)
    return _quoted(text) if value is None and not null else text


def _quoted(text: str) -> str:
    return in_quotes(text) if INTERPOLATION.search(text) and not os.path.exists(text) else quoted(text)


@lru_cache
def _parsed(text: str) -> Override | None:
    """Parse a value by Hydra's grammar; return None on failure."""
    try:
        return OverridesParser.create().parse_override(f"x={text}")
    except HydraException:
        return None


def _split(text: str) -> Iterable[str]:
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
