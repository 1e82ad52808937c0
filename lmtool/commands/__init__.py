"""The verbs: a verb is a module here, with the dataclass `Settings` and `run(settings, session)`, and conf/VERB.yaml.

Modules of verbs import what computes inside their functions, so that help pages read their settings without delay.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from lmtool.config.options import GROUP_MODULES, conf_dir
from lmtool.config.types import TRAINING, SettingType, field_types
from lmtool.config.yaml_files import read_yaml
from lmtool.system.terminal import first_use_announced, only_table

HUB_SETTINGS = ("run", "runs", "run_out", "ngrams_from", "paths")  # settings that may name runs of the Hub
FIRST = ["preprocess", "train", "eval", "ensemble"]  # what most people need, in this order


@cache
def verbs() -> list[str]:
    """Return the names of the verbs in the order of the help page: the most common first, the rest by name."""
    modules = {path.stem for path in Path(__file__).parent.glob("[!_]*.py")}
    found = sorted(name for name in modules if (conf_dir() / f"{name}.yaml").is_file())
    return [*FIRST, *(name for name in found if name not in FIRST)]


def settings_of(verb: str) -> type[Any]:
    settings: type[Any] = import_module(f"lmtool.commands.{verb}").Settings
    return settings


def verb_setting_types(verb: str) -> dict[str, SettingType]:
    """Return the types of a verb's settings, except the settings of its groups."""
    settings: Any = settings_of(verb)  # to mypy, a class is not hashable
    types = field_types(settings)
    return {key: type_ for key, type_ in types.items() if key not in GROUP_MODULES and key != TRAINING}


def bare_setting(verb: str) -> tuple[str, bool] | None:
    """Return the setting that a word without a key is a value of, if any, and whether it takes several words."""
    for field in dataclasses.fields(settings_of(verb)):
        if "rule" in field.metadata and field.metadata["rule"].bare:
            return field.name, str(field.type).startswith("list")
    return None


def top_level_keys(verb: str) -> set[str]:
    """Return a verb's top-level keys, including `hydra` and groups."""
    texts = [read_yaml(conf_dir() / f"{name}.yaml") for name in ("common", verb)]
    return {"hydra"}.union(*({setting.path[0] for setting in text.settings} | text.groups.keys() for text in texts))


def settings_for(verb: str, **arguments: Any) -> Any:
    """Return the settings of a verb that lmtool itself runs: the values of its YAML file, but for these arguments."""
    from lmtool.config.composition import Composition, verb_settings
    from lmtool.config.request import Request
    from lmtool.config.settings import build_settings

    composition = Composition(Request.from_arguments(verb, arguments), verb_setting_types(verb))
    return build_settings(verb_settings(composition.settings()), settings_of(verb))


def run_command(verb: str, settings: Any, session: Any) -> Any:
    """Run a verb with its settings in a session, with its number of threads, and return the result."""
    for key in HUB_SETTINGS:
        if "hub:" in str(named := getattr(settings, key, None)):
            from lmtool.runs.hub import local_run

            setattr(settings, key, [*map(local_run, named)] if isinstance(named, list) else local_run(str(named)))
    session.use_threads(settings.threads)  # before numpy and numba are imported, which read the variable then
    written = {getattr(settings, key, None) for key in ("to", "filter")}
    with first_use_announced(shown=session.progress), only_table("-" if "-" in written else None):
        return import_module(f"lmtool.commands.{verb}").run(settings, session)
