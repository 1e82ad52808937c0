"""Convert composed and saved configurations to typed settings.

Hydra composes plain values because the YAML files name no schema. This module merges them into the dataclasses of
lmtool.config.verbs and, for each group of options, of the option that `kind` names, so that a misspelled key or a value
of the wrong type is rejected by name before any work starts. Modules below the commands see only these dataclasses.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from lmtool.config.data import DataConfig
from lmtool.config.options import GROUP_MODULES, external_file, settings_class, yaml_files
from lmtool.config.request import to_plain_value
from lmtool.config.rules import format_value
from lmtool.config.training import TrainingConfig
from lmtool.config.types import TRAINING, field_types, hint_type
from lmtool.config.yaml_files import suggest_option
from lmtool.errors import UserError, first_line
from lmtool.system.terminal import nearest


class SettingError(UserError):
    """An error for an unknown key or a value of the wrong type. key: the whole key, empty for a missing value."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message, key)  # all arguments, so that it can be pickled
        self.key = key


T = TypeVar("T")


def build_settings(composed: DictConfig, expected: type[T]) -> T:
    """Convert the composed configuration of a verb, including its options, to the dataclass `expected`."""
    values: Any = OmegaConf.to_container(composed)  # interpolations are resolved at the end
    target = OmegaConf.structured(expected)
    for group in GROUP_MODULES:
        if group in values and values[group] is not None and any(f.name == group for f in fields(expected)):  # type: ignore[arg-type]
            target[group] = _merge_option(values.pop(group), group)
    settings = _build_object(target, values, "")
    assert isinstance(settings, expected)
    return settings


def saved_settings(saved: dict[str, Any], group: str, origins: dict[str, str] | None = None) -> Any:
    """Return the settings of an option from the plain values that a run saved, whose `kind` names the option.

    origins: where the run's external options came from, by group. Raises UserError if no option has the kind, or the
    values do not fit it, e.g. after a change of version.
    """
    values = to_plain_value(saved, group)
    chosen = {group: values} | {name: value for name, value in saved.items() if name in GROUP_MODULES and value}
    for name in chosen.keys() & (origins or {}).keys():  # errors of settings_class are not about the version
        settings_class(name, str(chosen[name]["kind"]), came_from=(origins or {})[name])
    try:
        return _build_object(_merge_option(values, group), {}, group)
    except UserError as error:
        raise UserError(f"the run's {group} settings do not fit this version of lmtool: {error}") from error


def build_part(values: dict[str, Any], settings: type[T], key: str) -> T:
    """Return settings, of the key, from plain values. Raises UserError if they do not fit."""
    part: T = _build_object(OmegaConf.structured(settings), to_plain_value(values, key), key)
    return part


def option_origins(settings: dict[str, Any]) -> dict[str, str]:
    """Return where the external options of settings in plain values come from, by group; data may choose one, too."""
    chosen = (settings.get("data") or {}) | settings
    files = {group: external_file(group, chosen[group]["kind"]) for group in GROUP_MODULES if chosen.get(group)}
    return {group: str(file[0]) for group, file in files.items() if file is not None}


def data_settings(provenance: dict[str, Any]) -> Any:
    """Return the settings of a data set, a DataConfig, from the provenance of its store.

    Raises UserError if they do not fit this version, or are those of an option that is not in use here.
    """
    return saved_settings(provenance["settings"], "data")


def build_named_option(group: str, value: Any, key: str) -> Any:
    """Return the settings of an option that a setting of another option gives: as its name, or as a mapping with the
    name as `kind` and values that replace those of its YAML file.

    key: key of that setting. Raises UserError if `value` names no option or does not fit it.
    """
    values = {"kind": value} if isinstance(value, str) else value
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise SettingError(f"{key}={value}: must be the name of an option of {group}=, or {{kind: NAME, ...}}", key)
    name = values["kind"]
    path = yaml_files(group).get(name)
    if path is None:
        raise SettingError(f"{key}={name}: no option of {group}={suggest_option(group, name)}", key)
    file_values = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(file_values, dict) or "defaults" in file_values:
        raise SettingError(f"{key}={name}: {path.name} is made of several files; name the option that it changes", key)
    settings = settings_class(group, str(file_values.get("kind")))
    values = {**file_values, **values, "kind": file_values["kind"]}
    return _build_object(OmegaConf.structured(settings), values, key)


def settings_as_json(settings: Any) -> dict[str, Any]:
    """Return settings as the plain values that a run saves: dictionaries, lists, strings, numbers and null."""

    def plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value.name if isinstance(value, Enum) else value for name, value in items}

    return asdict(settings, dict_factory=plain)


def _merge_option(values: Any, group: str) -> DictConfig:
    """Return the settings of an option, merged into its class."""
    kind = str(values.get("kind")) if isinstance(values, dict) else str(values)
    return _merge_values(OmegaConf.structured(settings_class(group, kind)), values, group)


def _merge_values(target: DictConfig, values: dict[str, Any], group: str) -> DictConfig:
    """Merge values into settings that nothing else uses, and return them; OmegaConf.merge would copy them first."""
    try:
        target.merge_with(values)
    except OmegaConfBaseException as error:
        raise _setting_error(error, group) from error
    except OverflowError:  # raised for a whole number instead of a float, without its key
        raise SettingError(f"{group or 'a setting'}: numbers must be at most {sys.float_info.max:.2g}", group) from None
    return target


def _build_object(target: DictConfig, values: dict[str, Any], group: str) -> Any:
    merged = _merge_values(target, values, group)
    try:
        settings: Any = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise _setting_error(error, group) from error
    for part in (settings, getattr(settings, "data", None), getattr(settings, TRAINING, None)):
        if isinstance(part, DataConfig | TrainingConfig):
            part.complete(build_named_option)
    return settings


def _setting_error(error: OmegaConfBaseException, group: str) -> SettingError:
    key = "" if isinstance(error, MissingMandatoryValue) else find_whole_key(error, group)
    return SettingError(describe_config_error(error, group), key)


def find_whole_key(error: OmegaConfBaseException, group: str = "") -> str:
    """Return the key that an OmegaConf error is about, with its group."""
    return ".".join(part for part in (group, str(error.full_key or error.key or "")) if part)


def describe_config_error(error: OmegaConfBaseException, group: str = "") -> str:
    """Return an OmegaConf error in one line: the key and the reason."""
    key = find_whole_key(error, group) or "a setting"
    if isinstance(error, MissingMandatoryValue):
        return f"{key} has no value: give one, e.g. {key}=..."
    if isinstance(error, ConfigKeyError | ConfigAttributeError):
        return f"no key {key!r}{nearest(str(error.key), find_sibling_keys(error))}"
    if isinstance(error, ValidationError):
        rule = find_violated_rule(error)
        return f"{key}: {first_line(error)}" if rule is None else f"{key}={format_value(error.value)}: must be {rule}"
    return f"{key}: {first_line(error)}" if key not in first_line(error) else first_line(error)


def find_violated_rule(error: ValidationError) -> str | None:
    """Return the rule for a value that OmegaConf rejected, e.g. "a whole number or null", or None if it is unknown."""
    owner = error.object_type
    if owner is not None and is_dataclass(owner):
        type_ = field_types(owner).get(str(error.key))
        return type_.words if type_ is not None else None
    entry_type = error.ref_type  # the value is an entry of a list or of a dictionary
    parts = [part for part in get_args(entry_type) if part is not NoneType]
    if get_origin(entry_type) in (Union, UnionType) and len(parts) == 1:
        entry_type = parts[0]
    return hint_type(get_args(entry_type)[-1]).words if get_origin(entry_type) in (list, dict) else None


def find_sibling_keys(error: OmegaConfBaseException) -> list[str]:
    """Return the keys on the same level as a key that was not found."""
    parent = error.parent_node
    if parent is None or not OmegaConf.is_dict(parent):
        return []
    return [str(name) for name in parent if name != "hydra"]
