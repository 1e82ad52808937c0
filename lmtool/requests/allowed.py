"""What untrusted YAML files and saved requests may set of Hydra and of Spark.

Hydra instantiates each `_target_` of its callbacks, launcher and sweeper, Python's logging calls what `()` and `class`
name, `hydra.launcher.setup` and some of Spark's options are shell, and `options` is a folder of Python files. A user
who writes such a setting on the command line runs their own code; YAML files of --config-dir and hydra.searchpath, and
a run folder, may come from a stranger: they are untrusted and must not run code. Composing them runs nothing. The
composed settings are compared with those of lmtool's own files alone. Each key that differs must be in ALLOWED, with a
value of the form given there. Hydra's own application, which runs sweeps, does not read such files: it gets what has
been checked, as words.
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
from lmtool.config.request import OUT, OUT_KEYS, SEARCH_PATH, Request, is_run_control_key
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
    # Folders below the working folder or the sweep's.
    "hydra.run.dir": FOLDER,
    "hydra.sweep.dir": FOLDER,
    "hydra.sweep.subdir": FOLDER,
    "hydra.output_subdir": FOLDER,
    # Names of jobs and of a search, which become names of files.
    "hydra.job.name": NAME,
    "hydra.launcher.name": NAME,
    "hydra.sweeper.study_name": NAME,
    # One of two words: whether to sweep, and what a search looks for.
    "hydra.mode": "RUN|MULTIRUN",
    "hydra.sweeper.direction": "minimize|maximize",
    # How many jobs run at once, how long, and on what.
    "hydra.launcher.n_jobs": NUMBER,
    "hydra.launcher.verbose": NUMBER,
    "hydra.launcher.timeout": NUMBER,
    "hydra.launcher.batch_size": NUMBER,
    "hydra.launcher.timeout_min": NUMBER,
    "hydra.launcher.cpus_per_task": NUMBER,
    "hydra.launcher.gpus_per_node": NUMBER,
    "hydra.launcher.tasks_per_node": NUMBER,
    "hydra.launcher.mem_gb": NUMBER,
    "hydra.launcher.nodes": NUMBER,
    "hydra.launcher.stderr_to_stdout": NUMBER,
    "hydra.launcher.cpus_per_gpu": NUMBER,
    "hydra.launcher.gpus_per_task": NUMBER,
    "hydra.launcher.signal_delay_s": NUMBER,
    "hydra.launcher.max_num_timeout": NUMBER,
    "hydra.launcher.array_parallelism": NUMBER,
    "hydra.launcher.max_nbytes": SIZE,
    "hydra.launcher.mem_per_gpu": SIZE,
    "hydra.launcher.mem_per_cpu": SIZE,
    # Names that a cluster gives its resources and accounts.
    "hydra.launcher.partition": WORDS,
    "hydra.launcher.qos": WORDS,
    "hydra.launcher.comment": WORDS,
    "hydra.launcher.constraint": WORDS,
    "hydra.launcher.exclude": WORDS,
    "hydra.launcher.gres": WORDS,
    "hydra.launcher.account": WORDS,
    # How long a search runs.
    "hydra.sweeper.max_batch_size": NUMBER,
    "hydra.sweeper.n_trials": NUMBER,
    "hydra.sweeper.n_jobs": NUMBER,
    "hydra.sweeper.max_failure_rate": NUMBER,
    # Spark on this machine; any other master is a computer that gets the data.
    "counts.master": r"local(\[(\d+|\*)(, *\d+)?\])?",
    # Neither a folder of Python files nor all of Spark's options at once.
    "options": "null",
    "counts.options": "null",
    # Memory, cores and network of Spark.
    "counts.options.spark.driver.memory": SIZE,
    "counts.options.spark.driver.memoryOverhead": SIZE,
    "counts.options.spark.driver.memoryOverheadFactor": SIZE,
    "counts.options.spark.driver.cores": SIZE,
    "counts.options.spark.driver.maxResultSize": SIZE,
    "counts.options.spark.executor.memory": SIZE,
    "counts.options.spark.executor.memoryOverhead": SIZE,
    "counts.options.spark.executor.memoryOverheadFactor": SIZE,
    "counts.options.spark.executor.cores": SIZE,
    "counts.options.spark.executor.instances": SIZE,
    "counts.options.spark.executor.heartbeatInterval": SIZE,
    "counts.options.spark.task.cpus": SIZE,
    "counts.options.spark.cores.max": SIZE,
    "counts.options.spark.default.parallelism": SIZE,
    "counts.options.spark.memory.fraction": SIZE,
    "counts.options.spark.memory.storageFraction": SIZE,
    "counts.options.spark.sql.shuffle.partitions": SIZE,
    "counts.options.spark.network.timeout": SIZE,
    "counts.options.spark.rpc.askTimeout": SIZE,
    "counts.options.spark.rpc.message.maxSize": SIZE,
    "counts.options.spark.reducer.maxSizeInFlight": SIZE,
    "counts.options.spark.shuffle.compress": SIZE,
    "counts.options.spark.shuffle.file.buffer": SIZE,
    "counts.options.spark.shuffle.io.maxRetries": SIZE,
    "counts.options.spark.shuffle.io.retryWait": SIZE,
}
SAMPLER = re.compile(r"hydra\.sweeper\.sampler\.[a-z]\w*")  # settings of a search's sampler, all of them numbers
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
        user_leaves |= {*OUT_KEYS}
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
    return Composition(replace(request, choices=choices, values={}, config_dir=None), {}).composed


def find_trusted_choices(composition: Composition) -> dict[str, str]:
    """Return the options of Hydra's groups that are chosen and not its defaults; for an untrusted launcher or sweeper,
    the installed one that it is made of.
    """
    request, hydra_settings = composition.request, composition.composed.hydra
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
        if is_run_control_key(name):
            raise SettingError(f"{key}={text}: {REMEDY}", key)
        if name.startswith("~"):
            raise SettingError(f"{key}: a parameter is a setting, which cannot be left out", key)
        return require_allowed(name.lstrip("+"), value)
    form = NUMBER if SAMPLER.fullmatch(key) else ALLOWED.get(key)
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
