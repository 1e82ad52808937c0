"""Compose the settings of a request by Hydra's public interface: the options that it chooses, then its values."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobRuntime, env_override
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from lmtool.config.grammar import sweep_values, to_hydra_text
from lmtool.config.options import conf_dir, option_sources
from lmtool.config.request import (
    DICTIONARIES,
    HYDRA_TEXTS,
    OUT,
    RUN_DIR,
    SEARCH_PATH,
    SWEEP_DIR,
    Request,
    is_run_control_key,
)
from lmtool.config.types import SettingType, option_types

# The version of Hydra's behavior, which Hydra 1.3 asks for and Hydra 1.4 warns of.
BASE: dict[str, str] = {"version_base": "1.3"} if hydra.__version__.startswith("1.3") else {}
OPTIONAL = "+optional."  # before a group that not all jobs of a sweep use, which Hydra would refuse
_hydra_lock = RLock()  # Hydra's state belongs to the process


class UnknownKeyError(Exception):
    """A key that composed settings lack; its only argument."""


class Composition:
    """The options that a request chooses, composed, and the types of their settings; values are not set.

    verb_types: types of the verb's own settings, by name. composed: the composed options. choices: the option of each
    group in use, without those of Hydra. Raises Hydra's and OmegaConf's errors.
    """

    def __init__(self, request: Request, verb_types: Mapping[str, SettingType]) -> None:
        self.request, self.verb_types = request, verb_types
        self.composed = _compose_choices(request)
        chosen = ((str(key).partition("@")[0], str(name)) for key, name in self.composed.hydra.runtime.choices.items())
        self.choices = {group: name for group, name in chosen if "/" not in group and group in self.composed}

    def type_of(self, key: str) -> SettingType | None:
        """Return the type of a setting by its whole key, or None if there is no such setting."""
        head, *path = key.split(".")
        if head in ("hydra", OUT):
            return SettingType(frozenset({"str"} if key in (*HYDRA_TEXTS, OUT) else ()))
        if head in self.verb_types:
            return self.verb_types[head].below(path)
        return self.option_type(head).below(path) if head in self.choices else None

    def option_type(self, group: str) -> SettingType:
        """Return the settings of a group's option as the fields of one type, which is free if they are unknown."""
        values = self.composed.get(group)
        fields = option_types(
            group, str(values.get("kind", self.choices[group]) if OmegaConf.is_dict(values) else values)
        )
        return SettingType(frozenset({group} if fields else ()), fields=fields)

    def keys(self) -> list[str]:
        """Return the whole keys of all settings that hold no others, and of Hydra's folders."""
        options = {group: self.option_type(group) for group in self.choices}
        keys = [*SettingType(fields=dict(self.verb_types)).leaves(), *SettingType(fields=options).leaves()]
        return [key for key in keys if not key.endswith(".kind")] + [OUT]

    def settings(self) -> DictConfig:
        """Return the settings with the request's values, those of Hydra under `hydra`, all of which may be changed.

        Raises UnknownKeyError for a key that does not exist.
        """
        settings, values = copy.deepcopy(self.composed), self.request.values
        for key, value in values.items():
            if key not in (SEARCH_PATH, OUT):
                try:
                    _set_value(settings, key, value)
                except (ConfigAttributeError, ConfigKeyError, ValueError) as error:  # ValueError: of a list
                    raise UnknownKeyError(key) from error
        hydra_settings = settings.hydra
        hydra_settings.mode = hydra_settings.mode or RunMode.RUN
        if OUT in values:
            (hydra_settings.sweep if hydra_settings.mode == RunMode.MULTIRUN else hydra_settings.run).dir = values[OUT]
        words = self.request.words()
        hydra_settings.overrides.task = [word for word in words if not is_run_control_key(word)]
        hydra_settings.overrides.hydra = [word for word in words if is_run_control_key(word)]
        return settings


def verb_settings(settings: DictConfig) -> DictConfig:
    """Return composed settings without those of Hydra."""
    return OmegaConf.masked_copy(settings, [str(key) for key in settings if key != "hydra"])


def _set_value(settings: DictConfig, key: str, value: Any) -> None:
    """Set the value of a key, which must exist unless it begins with `+`; dictionaries of settings are merged."""
    is_new, key = key.startswith("+"), key.lstrip("+")
    node = OmegaConf.select(settings, key) if isinstance(value, dict) and key not in DICTIONARIES else None
    if OmegaConf.is_dict(node) and (node or not value):
        for name, item in value.items():
            _set_value(settings, f"{'+' * is_new}{key}.{name}", item)
        return
    parent, _, last = key.rpartition(".")
    if parent and not is_new and OmegaConf.select(settings, parent) is None:
        raise ConfigKeyError(f"no key {key!r}")
    if is_new:
        OmegaConf.update(settings, key, value, force_add=True)
        return
    above = OmegaConf.select(settings, parent) if parent else settings
    if OmegaConf.is_dict(above) and parent in DICTIONARIES:
        with open_dict(above):
            above[last] = value
    else:
        OmegaConf.update(settings, key, value, merge=False)


def _compose_choices(request: Request) -> DictConfig:
    """Compose the options that a request chooses, once while no YAML file changes. The result must not be changed."""
    words = [f"{group}={option}" for group, option in request.choices.items()]
    folder, search = conf_dir().absolute(), _search_path(request)
    if search:
        words.append(f"{SEARCH_PATH}={to_hydra_text(search)}")
    folders = [folder, *(Path(place.removeprefix("file://")) for place in search)]
    return _compose_cached(request.verb, folder, tuple(words), _file_versions(folders))


def _search_path(request: Request) -> list[str]:
    """Return the places of YAML files besides lmtool's own."""
    value = request.values.get(SEARCH_PATH) or []
    folders = [*(source.folder for source in option_sources()), *request.folders]
    return [*(f"file://{each.absolute()}" for each in folders), *(value if isinstance(value, list) else [value])]


def hydra_words(request: Request, optional_keys: Collection[str] = ()) -> list[str]:
    """Return a request as overrides for Hydra's own application, without the sweep's output folder.

    optional_keys: keys that some jobs of a sweep lack.
    """
    words = []
    for key, value in request.items():
        if key in request.choices:
            options = sweep_values(key.lstrip("+"), value, request.folders) if key in optional_keys else None
            name = f"{OPTIONAL}{key.lstrip('+')}" if key in optional_keys else key
            words.append(f"{name}={','.join(options or [value])}")
        elif key not in (OUT, SWEEP_DIR, SEARCH_PATH, "hydra.mode"):
            text = value if request.sweep and not is_run_control_key(key) else to_hydra_text(value)
            words.append(f"{'++' if key in optional_keys or key in DICTIONARIES else ''}{key}={text}")
    if OUT in request.values and not request.sweep:
        words.append(f"{RUN_DIR}={to_hydra_text(request.values[OUT])}")
    search = _search_path(request)
    words += [f"{SEARCH_PATH}={to_hydra_text(search)}"] if search else []
    return words


def run_hydra_app(request: Request, flags: list[str], words: list[str], task: Callable[[DictConfig], object]) -> None:
    """Run Hydra's own application with these flags and overrides, and the folders of a request."""
    argv = sys.argv
    sys.argv = ["lmtool", *flags, *words]
    try:
        with env_override({"HYDRA_FULL_ERROR": "1"}), hydra_state():  # errors are raised instead of printed
            hydra.main(config_path=str(conf_dir().absolute()), config_name=request.verb, **BASE)(task)()
    finally:
        sys.argv = argv


def _file_versions(folders: list[Path]) -> tuple[Any, ...]:
    """Return what changes if a YAML file of one of the folders does."""
    files = sorted(path for folder in folders for path in folder.rglob("*.yaml"))
    stats = [(path, os.stat(path)) for path in files if path.is_file()]
    return tuple((str(path), each.st_mtime_ns, each.st_ctime_ns, each.st_size) for path, each in stats)


@lru_cache(maxsize=100)  # some 100 KB each
def _compose_cached(name: str, folder: Path, words: tuple[str, ...], versions: tuple[Any, ...]) -> DictConfig:
    with hydra_state(), hydra.initialize_config_dir(str(folder), job_name="lmtool", **BASE):
        return hydra.compose(name, list(words), return_hydra_config=True)


@contextmanager
def hydra_state() -> Iterator[None]:
    """Let one thread use Hydra in the block, and restore the state of the caller's own Hydra application after it."""
    with _hydra_lock:
        application, base, name = GlobalHydra.instance(), VersionBase().getbase(), JobRuntime().get("name")
        current, application.hydra = application.hydra, None
        try:
            yield
        finally:
            GlobalHydra.set_instance(application)
            application.hydra = current
            VersionBase().version_base = base
            JobRuntime().conf.name = name  # its method would log it
