"""Types of settings from the dataclasses; of an external option, only the names, from its YAML file.

The Python file of an external option is not executed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from lmtool.config.options import GROUP_MODULES, external_file, own_class, yaml_files
from lmtool.config.rules import Rule, field_rules
from lmtool.config.training import TrainingConfig
from lmtool.config.yaml_files import read_yaml

WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
ITEMS = {int: "whole numbers", float: "numbers", str: "words"}
TRAINING = "training"  # the only group without kinds


@dataclass(frozen=True, slots=True)
class SettingType:
    """The type of a setting and its allowed values.

    names: names of Python types, including `None` and `Any`; empty if unknown. values: the members of an enumeration,
    or the words that a text may be. item: the type of a list's items. fields: the settings of a dataclass, by name.
    words: the type in words. annotation, rule: annotation and rule of the dataclass field.
    """

    names: frozenset[str] = frozenset()
    values: tuple[str, ...] = ()
    item: SettingType | None = None
    fields: dict[str, SettingType] = field(default_factory=dict)
    words: str | None = None
    annotation: str = ""
    rule: Rule | None = None

    @property
    def bounds(self) -> str:
        """The range of a number in words; empty if it is unlimited."""
        return self.rule.bounds if self.rule is not None else ""

    @property
    def allowed(self) -> str:
        """The rule for its values in words: its range, else its type; empty if any value is allowed."""
        return (self.rule.text(self.annotation) if self.rule is not None else "") or self.words or ""

    @property
    def is_text(self) -> bool:
        """Whether it can only be a string or null."""
        return bool(self.names) and self.names <= {"str", "None"}

    @property
    def may_be_text(self) -> bool:
        """Whether it may be a string, alone or in a list."""
        return bool(self.names & {"str", "Any"}) or (self.item is not None and self.item.may_be_text)

    @property
    def is_free(self) -> bool:
        """Whether any key is allowed inside it: it is a dictionary, or its type is unknown."""
        return not self.names or bool(self.names & {"Any", "dict"})

    def below(self, path: list[str]) -> SettingType | None:
        """Return the type of a setting inside this one, or None if it does not exist."""
        if not path:
            return self
        inner = self.fields.get(path[0])
        return inner.below(path[1:]) if inner is not None else SettingType() if self.is_free else None

    def leaves(self) -> Iterator[str]:
        """Iterate over the keys of the innermost settings inside this one."""
        for name, inner in self.fields.items():
            yield from (f"{name}.{key}" for key in inner.leaves()) if inner.fields else (name,)


@cache
def field_types(settings: type) -> dict[str, SettingType]:
    """Return the types and ranges of the settings of a dataclass, by name."""
    hints, rules = get_type_hints(settings), field_rules(settings)
    types = {}
    for item in dataclasses.fields(settings):
        type_, rule = hint_type(hints[item.name]), rules.get(item.name)
        values = rule.words if rule is not None and type_.is_text else type_.values
        types[item.name] = replace(type_, values=values, annotation=str(item.type), rule=rule)
    return types


def hint_type(hint: Any) -> SettingType:
    """Return the type that a type hint means; `words` are None if it allows any value or has no description."""
    kind, parts = get_origin(hint), [hint_type(part) for part in get_args(hint)]
    if kind in (Union, UnionType):
        known = [part.words for part in parts if part.words is not None]
        words = " or ".join(known).replace("true or false or", "true, false or") if len(known) == len(parts) else None
        values = tuple(value for part in parts for value in part.values)
        inner = {key: of for part in parts for key, of in part.fields.items()}
        item = next((part.item for part in parts if part.item is not None), None)
        return SettingType(frozenset().union(*(part.names for part in parts)), values, item, inner, words)
    if kind is list:
        items = ITEMS.get(get_args(hint)[0])
        return SettingType(frozenset({"list"}), item=parts[0], words=f"a list of {items}" if items else "a list")
    if kind is dict:
        return SettingType(frozenset({"dict"}), words="keys with values, e.g. {key: value}")
    names = frozenset({"None" if hint is NoneType else getattr(hint, "__name__", "Any")})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return SettingType(names, values=tuple(hint.__members__), words=f"one of {', '.join(hint.__members__)}")
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return SettingType(names, fields=field_types(hint))
    return SettingType(names, words=WORDS.get(hint))


def option_types(group: str, kind: str) -> dict[str, SettingType]:
    """Return the settings of an option; empty if the option does not exist."""
    if group == TRAINING:
        return field_types(TrainingConfig)
    files = yaml_files(group)
    if kind not in files or group not in GROUP_MODULES:
        return {}
    if external_file(group, kind) is not None:
        return {setting.path[0]: SettingType() for setting in read_yaml(files[kind], files).settings}
    own = own_class(group, kind)
    return {} if own is None else field_types(own)
