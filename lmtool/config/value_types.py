"""What a setting of the wrong type has to be, in words, from the types of its dataclass."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

NAMES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
ITEMS = {int: "whole numbers", float: "numbers", str: "words"}


def rule_of(error: ValidationError) -> str | None:
    """What the value that OmegaConf refused has to be, such as "a whole number or null"; None where nobody says."""
    owner = error.object_type
    if owner is not None and is_dataclass(owner):
        return in_words(get_type_hints(owner).get(str(error.key)))
    of_entries = _without_null(error.ref_type)  # the value is an entry of a list or of a dictionary
    return in_words(get_args(of_entries)[-1]) if get_origin(of_entries) in (list, dict) else None


def in_words(type_: Any) -> str | None:
    """A type of Python's in words for users; None for one that any value is of, or that has no such words."""
    if get_origin(type_) in (Union, UnionType):
        parts = [in_words(part) for part in get_args(type_)]
        words = " or ".join(str(part) for part in parts).replace("true or false or", "true, false or")
        return None if None in parts else words
    if get_origin(type_) is list:
        items = ITEMS.get(get_args(type_)[0])
        return f"a list of {items}" if items else "a list"
    if get_origin(type_) is dict:
        return "keys with values, as {key: value}"
    if isinstance(type_, type) and issubclass(type_, Enum):
        return "one of " + ", ".join(member.name for member in type_)
    return NAMES.get(type_)


def _without_null(type_: Any) -> Any:
    """The other type of a type that may be null."""
    others = [part for part in get_args(type_) if part is not NoneType]
    return others[0] if get_origin(type_) in (Union, UnionType) and len(others) == 1 else type_


def as_written(value: Any) -> str:
    """A value as one writes it on the command line or in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(OmegaConf.to_container(value)) if OmegaConf.is_config(value) else str(value)
