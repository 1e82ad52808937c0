"""A request: the verb, the chosen options and the values that a command line, a call from Python, a job of a sweep or a
saved run asks for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from lmtool.config.grammar import escape_interpolation
from lmtool.config.options import EXPERIMENT, GROUP_MODULES
from lmtool.config.rules import format_value
from lmtool.errors import UserError

OUT = "out"  # the output folder: of a run, or, in a sweep, of the sweep
RUN_DIR, SWEEP_DIR = "hydra.run.dir", "hydra.sweep.dir"  # Hydra's names for it
OUT_KEYS = (OUT, RUN_DIR, SWEEP_DIR)
SEARCH_PATH = "hydra.searchpath"
# Hydra's settings that are paths or names; the types of its other settings are not known here.
HYDRA_TEXTS = (RUN_DIR, SWEEP_DIR, "hydra.sweep.subdir", "hydra.job.name")
# Settings that are dictionaries with keys of the user's own.
DICTIONARIES = {"data.train", "data.downloads", "data.segmenter", "smoother.source_weights", "counts.options"}


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for; `lmtool.config.composition` makes the settings of it.

    choices: the option of each group that is chosen, by the group, with Hydra's mark `+` for an experiment. values: by
    whole key, with `+` for a key of Hydra's that is added; text is as OmegaConf reads it: `${...}` is an interpolation,
    unless it is escaped. sweep: whether choices and values are those of a sweep, in Hydra's grammar, e.g. "1,2".
    config_dir: the folder of --config-dir. order: keys of choices and values as they were given, by which a sweep
    numbers its jobs. started_in: the folder to which relative paths of a saved request refer. user_keys: keys of values
    that the user has given, if others are from an untrusted saved request; None: all.
    """

    verb: str
    choices: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    config_dir: str | None = None
    sweep: bool = False
    order: list[str] = field(default_factory=list)
    started_in: str = field(default="", compare=False)
    user_keys: frozenset[str] | None = field(default=None, compare=False)

    @classmethod
    def from_arguments(cls, verb: str, arguments: Mapping[str, Any]) -> Request:
        """Return the request of Python's arguments: for a group, the name of an option, or a dictionary of its settings
        with the name under "kind"; for other settings, values and dictionaries of them. None is left out, but is null
        within a dictionary. Raises UserError for a value that is not a plain value.
        """
        choices: dict[str, str] = {}
        values: dict[str, Any] = {}
        for key, value in arguments.items():
            if value is None:
                continue
            if key == EXPERIMENT:
                if not isinstance(value, str):
                    raise UserError(f"{key}={value!r:.40}: must be the name of a YAML file in conf/experiment")
                choices[f"+{key}"] = value
            elif key in GROUP_MODULES and isinstance(value, str):
                choices[key] = value
            elif key in GROUP_MODULES and isinstance(value, list | tuple):
                hint = "lmtool.Corpus.from_texts(train=..., valid=0.1)" if key == "data" else "a name or a dictionary"
                kind = type(value).__name__
                raise UserError(f"{key}={value!r:.40}: must be an option of {key}=, not a {kind}: pass {hint}")
            else:
                if key in GROUP_MODULES and isinstance(value, Mapping) and "kind" in value:
                    choices[key] = str(value["kind"])
                    value = {name: item for name, item in value.items() if name != "kind"}
                values |= dict(_iterate_settings(key, to_plain_value(value, key)))
        return cls(verb, choices, values)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Request:
        """Return a request that was saved by `as_json`, whose schema has been checked."""
        names = [name for name in cls.__dataclass_fields__ if name in saved]
        return cls(**{name: saved[name] for name in names})

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {name: value for name, value in asdict(self).items() if value and name != "user_keys"}

    def updated(self, new: Request) -> Request:
        """Return this request with the choices and values of a newer one; the newer value wins."""
        order = [*self.order, *(key for key in new.order if key not in self.order)]
        user_keys = None if self.user_keys is None else self.user_keys | new.values.keys()
        config_dir = new.config_dir or self.config_dir
        merged = replace(self, order=order, user_keys=user_keys, config_dir=config_dir)
        return replace(merged, choices=self.choices | new.choices, values=self.values | new.values)

    def without(self, *keys: str) -> Request:
        """Return this request without the values of some keys."""
        return replace(self, values={key: value for key, value in self.values.items() if key not in keys})

    def with_out(self, folder: str) -> Request:
        """Return this request with another output folder."""
        return self.without(*OUT_KEYS).updated(Request(self.verb, values={OUT: escape_interpolation(folder)}))

    def words_in_groups(self, *groups: str) -> list[str]:
        """Return, as words, the choices and values that are of one of the groups."""
        settings = self.settings.items()
        return [f"{key}={format_value(value)}" for key, value in settings if re.split("[.@]", key)[0] in groups]

    @property
    def is_untrusted(self) -> bool:
        """Whether untrusted YAML files or an untrusted saved request may take part."""
        return self.config_dir is not None or SEARCH_PATH in self.values or self.user_keys is not None

    def items(self) -> list[tuple[str, Any]]:
        """Return the keys and values of choices and values, in their order."""
        place = {key: number for number, key in enumerate(self.order)}
        return sorted((self.choices | self.values).items(), key=lambda item: place.get(item[0], len(place)))

    @property
    def settings(self) -> dict[str, Any]:
        """Its choices and values by key, without those that control the run."""
        return {key.lstrip("+"): value for key, value in self.items() if not is_run_control_key(key)}

    @property
    def setting_values(self) -> dict[str, Any]:
        """Its values, without those that control the run."""
        return {key: value for key, value in self.values.items() if not is_run_control_key(key)}

    @property
    def folders(self) -> list[Path]:
        """[--config-dir, relative to the working folder], or []."""
        return [Path(os.path.relpath(self.config_dir))] if self.config_dir else []

    def words(self) -> list[str]:
        """Return it as overrides to read; only those of a sweep are sure to be of Hydra's grammar."""
        return [f"{key}={format_value(value)}" for key, value in self.items()]


def is_run_control_key(key: str) -> bool:
    """Return whether a key or a group controls the run: it is one of Hydra's own, or names the output folder."""
    return re.match(r"\+*(hydra([./]|$)|out$)", key.partition("=")[0]) is not None


def find_first_change(before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()) -> str | None:
    """Return the first key, chosen options before others, of which two mappings have different values; None if there is
    none. free: keys that may differ.
    """
    for key in sorted(before.keys() | now.keys(), key=lambda key: (not key.endswith(".kind"), key)):
        if key not in free and before.get(key) != now.get(key):
            return key
    return None


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their whole keys."""
    flat_values: dict[str, Any] = {}
    for key, value in values.items():
        flat_values |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat_values


def _iterate_settings(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dictionaries with their whole keys."""
    if not isinstance(value, dict) or key in DICTIONARIES or (not value and "." in key):
        yield key, value
        return
    if not value and key not in GROUP_MODULES:
        yield key, value
    for name, item in value.items():
        yield from _iterate_settings(f"{key}.{name}", item)


def to_plain_value(value: Any, key: str) -> Any:
    """Return a value of Python's as a plain value: text (escaped, so that it has no interpolation), a number, a list, a
    dictionary, or None. Raises UserError for any other.
    """
    if isinstance(value, Enum):
        value = value.value
    elif not isinstance(value, str | int | float | list | tuple) and getattr(value, "ndim", None) == 0:
        value = value.item()  # a NumPy or torch scalar
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, str | Path):
        return escape_interpolation(str(value))
    if isinstance(value, list | tuple | range):
        return [to_plain_value(item, key) for item in value]
    if isinstance(value, Mapping):
        return {str(name): to_plain_value(item, key) for name, item in value.items()}
    kind = type(value).__name__
    remedy = "; pass it as data=" if kind == "Corpus" else ""
    raise UserError(f"{key}={value!r}: settings are text, numbers, lists and dictionaries, not {kind}{remedy}")
