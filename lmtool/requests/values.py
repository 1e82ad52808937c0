"""Values of the words of a command line, by the types of their settings.

`text=ünï.txt`, `text=x=y.txt` and `text=a,b.txt` are paths, `runs=a,b` is a list; what Hydra's grammar reads as a value
of the setting is that value.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep

from lmtool.config.grammar import escape_interpolation, parse_value, quote_interpolated, split_at_commas
from lmtool.config.request import HYDRA_TEXTS, OUT
from lmtool.config.rules import require_text
from lmtool.config.types import SettingType
from lmtool.errors import UserError

WORD = re.compile(r"(?P<mark>\+{0,2})(?P<key>[^+~=][^=]*)=(?P<value>.*)", re.DOTALL)
INTERPOLATION = re.compile(r"\$\{[^}]+\}")
SWEEP_NEEDS_M = "a sweep over several values needs -m"


@dataclass(frozen=True, slots=True)
class Word:
    """A word `key=text`. mark: `+` or `++` before the key. written: the whole word."""

    mark: str
    key: str
    text: str
    written: str


def read_value(word: Word, type_: SettingType) -> Any:
    """Return the value of a setting of one type."""
    key, text = word.key, word.text
    _require_form(word, type_)
    is_prose = type_.rule is not None and type_.rule.prose  # text to read, not a path
    if not is_prose:
        require_text(key, text)
        text = os.path.expanduser(text)
        if key in (*HYDRA_TEXTS, OUT):
            _require_folder(word, text)
        if type_.may_be_text and os.path.exists(text) and (INTERPOLATION.search(text) or not type_.is_text):
            return escape_interpolation(text) if type_.item is None else [escape_interpolation(text)]
    if type_.is_text:
        return read_text(text, null=True)
    override = parse_value(text)
    if override is not None and override.value() is None:
        return None
    if (type_.item is not None or type_.is_free) and text.startswith("[") and text.endswith("]"):
        return _read_items(word, text[1:-1], type_.item)
    simple = override is not None and isinstance(sweep := override.value(), ChoiceSweep) and sweep.simple_form
    if override is None and text.startswith(("[", "{")):
        raise unreadable_word_error(word.written)
    if type_.item is not None or (type_.is_free and simple):
        return _read_items(word, text, type_.item)
    if override is not None and override.is_sweep_override():
        raise UserError(f"{word.written}: {SWEEP_NEEDS_M}")
    return read_text(text, null=False) if override is None else _to_plain(override.value())


def _read_items(word: Word, text: str, item: SettingType | None) -> list[Any]:
    """Return the values of a list, of comma-separated items of a type."""
    items: list[Any] = []
    for part in map(os.path.expanduser, split_at_commas(text) if text.strip() else []):
        override = parse_value(part)
        if not part:
            raise UserError(f"{word.written}: an item of the list is empty: write {word.key}=a,b")
        if (item is not None and item.is_text) or override is None:
            items.append(read_text(part, null=False))
        elif override.is_sweep_override():
            raise UserError(f"{word.written}: {SWEEP_NEEDS_M}")
        else:
            items.append(_to_plain(override.value()))
    return items


def read_text(text: str, *, null: bool = False) -> str | None:
    """Return text as it is meant: quotes, escapes and interpolations are Hydra's, all else stays as it is written.

    null: whether null means None.
    """
    override = parse_value(text)
    value: Any = None if override is None else override.value()
    if override is not None and value is None and null:
        return None
    if isinstance(value, str) and not (override is not None and override.is_sweep_override()):
        return str(_to_plain(value))
    return text if INTERPOLATION.search(text) else escape_interpolation(text)


def _to_plain(value: Any) -> Any:
    """Return a value of Hydra's parser as a plain one."""
    if isinstance(value, dict):
        return {str(_to_plain(key)): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    return value if value is None or isinstance(value, str | Number) else str(value)


def read_sweep(word: Word, type_: SettingType) -> str:
    """Return a sweep's values in Hydra's grammar, with quotes around those that it cannot read."""
    _require_form(word, type_)
    text = word.text
    if type_.rule is None or not type_.rule.prose:
        require_text(word.key, text)
        text = ",".join(map(os.path.expanduser, split_at_commas(text)))
    if parse_value(text) is not None:
        return text
    if "," not in text and text.startswith(("[", "{")):
        raise unreadable_word_error(word.written)
    return ",".join(_quote_unreadable(part) for part in split_at_commas(text))


def _quote_unreadable(text: str) -> str:
    if parse_value(text) is not None:
        return text
    if text.startswith("[") and text.endswith("]"):
        return f"[{','.join(map(_quote_unreadable, split_at_commas(text[1:-1])))}]"
    return quote_interpolated(text if INTERPOLATION.search(text) else escape_interpolation(text))


def _require_form(word: Word, type_: SettingType) -> None:
    """Raise UserError for a part of Hydra's settings, such as hydra.run, instead of its folder."""
    if any(name.startswith(f"{word.key}.") for name in HYDRA_TEXTS) and not word.text.startswith("{"):
        raise UserError(f"{word.written}: write out=FOLDER")


def _require_folder(word: Word, text: str) -> None:
    text = str(read_text(text, null=False))
    if not text or word.text == "null":
        raise UserError(f"{word.written}: name a folder; . is the one you are in")
    existing = next((each for each in (Path(text), *Path(text).parents) if os.path.exists(each)), None)
    if existing is not None and "${" not in text and not existing.is_dir():  # else it is known once it is composed
        raise UserError(f"{word.key}={text}: {existing} is a file: choose another folder")


def unreadable_word_error(word: str) -> UserError:
    """Return the error for a word that is not a setting."""
    return UserError(
        f"cannot read {word!r}: write key=value, a list as key=a,b, in a sweep 'key=[a,b]'; quote paths with brackets, "
        "commas or colons, e.g. key='x[01].txt'"
    )
