"""What untrusted YAML files and saved requests may set of Hydra and of Spark.

Hydra instantiates each `_target_` of its callbacks, launcher and sweeper, Python's logging calls what `()` and `class`
name, `hydra.launcher.setup` and some of Spark's options are shell, and `options` is a folder of Python files. A user
who writes such a setting on the command line runs their own code; YAML files of --config-dir and hydra.searchpath, and
a run folder, may come from a stranger: they are untrusted and must not run code. Composing them runs nothing. What they
are composed to is compared with what lmtool's own files are, wherever the difference comes from, and it must be in a
list of keys, each with the form of its values. Hydra's own application, which runs sweeps, does not read such files: it
gets what has been checked, as words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmtool.config.composition import Composition
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, PLUGINS
from lmtool.config.request import OUT, SEARCH_PATH, Request, is_hydra_key
from lmtool.config.rules import format_value, require_text
from lmtool.config.settings import SettingError
from lmtool.config.types import TRAINING

RESTRICTED_KEYS = re.compile(r"(hydra|options|counts\.options|counts\.master)(\.|$)|counts$")
# A folder below another; a time begins with digits.
FOLDER = r"(?!/)((?!\.\.(/|$))([^/\\$]|\$\{(hydra\.job\.(name|num|id)|now:%[YmdHMSf][-%\w:.]*)\})+(/|$))+|null"
NAME, WORDS = r"(?!\.\.?$)[^/\\$]+", r"([^$\\:]|:(?!//))*"
NUMBER, SIZE = r"-?[\d.]+(e[-+]?\d+)?|true|false|null|auto", r"[\d.]+ *([kmgtp]?b?|[mu]?s|min|h|d)|true|false"
# What untrusted files and requests may set of these, with the form of its values; the rest only the command line sets.
ALLOWED = {
    r"hydra\.(run\.dir|sweep\.(dir|subdir)|output_subdir)": FOLDER,
    r"hydra\.(job\.name|launcher\.name|sweeper\.study_name)": NAME,
    r"hydra\.mode": "RUN|MULTIRUN",
    r"hydra\.launcher\.(n_jobs|verbose|timeout|batch_size|timeout_min|cpus_per_task|gpus_per_node|tasks_per_node|mem_gb"
    r"|nodes|stderr_to_stdout|cpus_per_gpu|gpus_per_task|signal_delay_s|max_num_timeout|array_parallelism)": NUMBER,
    r"hydra\.launcher\.(max_nbytes|mem_per_gpu|mem_per_cpu)": SIZE,
    r"hydra\.launcher\.(partition|qos|comment|constraint|exclude|gres|account)": WORDS,
    r"hydra\.sweeper\.(max_batch_size|n_trials|n_jobs|max_failure_rate|sampler\.[a-z]\w*)": NUMBER,
    r"hydra\.sweeper\.direction": "minimize|maximize",
    r"counts\.master": r"local(\[(\d+|\*)(, *\d+)?\])?",
    r"options|counts\.options": "null",
    r"counts\.options\.spark\.((driver|executor)\.(memory(Overhead(Factor)?)?|cores)|driver\.maxResultSize|task\.cpus"
    r"|executor\.(instances|heartbeatInterval)|cores\.max|default\.parallelism|memory\.(storageF|f)raction"
    r"|sql\.shuffle\.partitions|network\.timeout|rpc\.(askTimeout|message\.maxSize)|reducer\.maxSizeInFlight"
    r"|shuffle\.(compress|file\.buffer|io\.(maxRetries|retryWait)))": SIZE,
}
PARAMETERS = "hydra.sweeper.params."
SET_BY_HYDRA = (  # what Hydra sets itself, and what a request gives in another place
    *(f"hydra.runtime.{name}" for name in ("version", "cwd", "config_sources", "choices")),
    *("hydra.overrides", "hydra.job.override_dirname", "hydra.job.config_name"),
    *("hydra.mode", SEARCH_PATH),
)
REMEDY = "YAML files and resumed lines may not set this; if it is your own, write it on the command line"


def require_allowed_settings(composition: Composition, settings: DictConfig) -> None:
    """Raise SettingError for a value that an untrusted YAML file or saved request may not set. settings: composed of
    the options of `composition`, with all values.
    """
    request = composition.request
    values = {key.lstrip("+"): value for key, value in request.values.items()}
    user_keys = values.keys() if request.user_keys is None else values.keys() & request.user_keys
    user_leaves = {".".join(path) for key in user_keys for path, _ in _iterate_leaves(values[key], (key,))}
    if OUT in user_leaves:
        user_leaves |= {"hydra.run.dir", "hydra.sweep.dir"}
    for key, value in restricted_changes(composition, settings).items():
        if key not in user_leaves:
            require_allowed(key, value)


def restricted_changes(composition: Composition, settings: DictConfig) -> dict[str, Any]:
    """Return the values by whole key that are restricted and not as lmtool and Hydra's plugins have them."""
    trusted = dict(_iterate_leaves(OmegaConf.to_container(_compose_trusted(composition), resolve=False)))
    changes = {}
    for path, value in _iterate_leaves(OmegaConf.to_container(settings, resolve=False)):
        key = ".".join(path)
        is_known = key.startswith(SET_BY_HYDRA) or (path in trusted and trusted[path] == value)
        if RESTRICTED_KEYS.match(key) and not is_known:
            changes[key] = value
    return changes


def _compose_trusted(composition: Composition) -> DictConfig:
    """Compose the verb by lmtool's own files alone, with the options of Hydra's own groups that are chosen."""
    usable: dict[str, str] = {}
    request = composition.request
    for group, option in find_trusted_choices(composition).items():
        with suppress(HydraException, OmegaConfBaseException):
            _compose_own_files(request, usable | {group: option})
            usable[group] = option
    return _compose_own_files(request, usable)


def _compose_own_files(request: Request, choices: dict[str, str]) -> DictConfig:
    """Compose the verb of a request by lmtool's own files alone, with these choices."""
    return Composition(replace(request, choices=choices, values={}, config_dir=None), {}).options


def find_trusted_choices(composition: Composition) -> dict[str, str]:
    """Return the options of Hydra's groups that are chosen and not its defaults; for an untrusted launcher or sweeper,
    the installed one that it is made of.
    """
    request, hydra_settings = composition.request, composition.options.hydra
    defaults = _compose_own_files(request, {}).hydra.runtime.choices
    options = {
        str(group): str(option)
        for group, option in hydra_settings.runtime.choices.items()
        if str(group).startswith("hydra/") and defaults.get(group) != option
    }
    for group, installed in PLUGINS.items():
        part = group.partition("/")[2]
        for option in installed if group in options and options[group] not in installed else ():
            with suppress(HydraException, OmegaConfBaseException):
                trusted = _compose_own_files(request, {group: option}).hydra[part]
                if trusted["_target_"] == hydra_settings[part]["_target_"]:
                    options[group] = option
    return options


def require_allowed_request(request: Request, user_keys: Collection[str]) -> None:
    """Raise UserError for a choice or value that an untrusted saved request may not have. user_keys: keys that the user
    has given.
    """
    for group, option in request.choices.items():
        require_text(group, option)
        if re.fullmatch(rf"\+{EXPERIMENT}|hydra/\w+|{'|'.join([*GROUP_MODULES, TRAINING])}", group) is None:
            raise SettingError(f"{group}={option}: {REMEDY}", group)
    for key, value in request.values.items():
        if re.fullmatch(r"\+?[\w./-]+", key) is None:
            raise SettingError(f"{key}={format_value(value)}: {REMEDY}", key)
        for keys, item in _iterate_leaves(value, (key.lstrip("+"),)):
            if (name := ".".join(keys)) not in user_keys:
                require_allowed(name, item)


def require_allowed(key: str, value: Any) -> None:
    """Raise UserError unless an untrusted file or request may set a key to this value."""
    text = format_value(value)
    require_text(key, text)
    if key.startswith(PARAMETERS) and "._" not in key:  # with the sweeper, Hydra instantiates a _target_ within them
        name = key.removeprefix(PARAMETERS)  # an override of each job
        if is_hydra_key(name):
            raise SettingError(f"{key}={text}: {REMEDY}", key)
        if name.startswith("~"):
            raise SettingError(f"{key}: a parameter is a setting, which cannot be left out", key)
        return require_allowed(name.lstrip("+"), value)
    form = next((form for keys, form in ALLOWED.items() if re.fullmatch(keys, key)), None)
    is_choice = key == "counts" and re.fullmatch(r"[\w, ]+", text) is not None
    is_allowed = is_choice or (form is not None and re.fullmatch(form, text, re.IGNORECASE) is not None)
    if (RESTRICTED_KEYS.match(key) or "@" in key) and not is_allowed:
        raise SettingError(f"{key}={text}: {REMEDY}", key)


def _iterate_leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of nested dictionaries and lists with their keys; an interpolated part is one value too."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _iterate_leaves(value, (*path, str(key)))
    if not isinstance(node, dict | list):
        yield path, node
