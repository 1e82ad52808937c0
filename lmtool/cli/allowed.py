"""What somebody else's YAML files and saved requests may set of Hydra and of Spark.

Hydra instantiates each `_target_` of its callbacks, launcher and sweeper, Python's logging calls what `()` and `class`
name, `hydra.launcher.setup` and some of Spark's options are shell, and `options` is a folder of Python files. A user
who types such a setting runs their own code; the files of --config-dir and hydra.searchpath, and a run folder, may be
somebody else's and must not run code. So each of these files, whether a line uses it or not, and each saved request is
checked against a list of keys, each with the form of its values, before Hydra reads it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmtool.config.options import HOMES
from lmtool.config.request import Request
from lmtool.config.rules import as_written, require_text
from lmtool.config.settings import SettingError
from lmtool.config.types import TRAINING
from lmtool.config.yaml_files import require_bounded_aliases
from lmtool.errors import named

GUARDED = re.compile(r"(hydra|options|counts\.options|counts\.master)(\.|$)|counts$")
FOLDER = r"(?!/)((?!\.\.(/|$))([^/\\$]|\$\{(hydra\.job\.(name|num|id)|now:[-%\w:.]+)\})+(/|$))+|null"  # below another
NAME, WORDS = r"(?!\.\.?$)[^/\\$]+", r"([^$\\:]|:(?!//))*"
NUMBER, SIZE = r"-?[\d.]+(e[-+]?\d+)?|true|false|null|auto", r"[\d.]+ *([kmgtp]?b?|[mu]?s|min|h|d)|true|false"
# What files and resumed lines may set of these, with the form of its values; anything else is typed.
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
PACKAGE = re.compile(r"^\s*#\s*@package\s+(\S+)", re.MULTILINE)
# Packages that a defaults list may name.
OWN_GROUP = re.compile(rf"(_global_\.)?({'|'.join([*HOMES, TRAINING])})(\.\w+)*|_global_")
REMEDY = "YAML files and resumed lines may not set this; if it is your own, write it on the command line"


def require_allowed_files(folders: Collection[Path], typed: Collection[str]) -> None:
    """Raise UserError, naming the file, for a YAML file below a folder that sets what it may not.

    typed: keys that the user has given, which replace those of files. Files that are not YAML are left alone.
    """
    for folder in folders:
        for path in sorted(folder.rglob("*.yaml")):
            require_bounded_aliases(path)
            with named(str(path.relative_to(folder))):
                _require_allowed_file(path, ".".join(path.relative_to(folder).parts[:-1]), typed)


def _require_allowed_file(path: Path, group: str, typed: Collection[str]) -> None:
    try:
        text = path.read_text(encoding="utf-8")
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException):
        return  # composing it will report it
    if not isinstance(content, dict):
        return
    defaults = content.pop("defaults", None)
    packages = [name.replace("_group_", group).replace("_name_", path.stem) for name in PACKAGE.findall(text)]
    for package in packages or [group]:
        inside = "" if package == "_global_" else package.removeprefix("_global_.") + "."
        for keys, value in _leaves(content):
            key = inside + ".".join(keys)
            if not any(f"{key}.".startswith(f"{given}.") for given in typed):
                require_allowed(key, value)
        for item in defaults if isinstance(defaults, list) else []:
            for entry in map(str, item if isinstance(item, dict) else [item]):
                *_, name = entry.split() or [""]
                moved = name.partition("@")[2]
                is_elsewhere = bool(moved) and OWN_GROUP.fullmatch(moved) is None
                if is_elsewhere or (GUARDED.match(inside) and re.search("[/@]", name)):
                    raise SettingError(f"{entry}: {REMEDY}", entry)  # the settings of any file would be moved there


def require_allowed_request(request: Request, typed: Collection[str]) -> None:
    """Raise UserError for a choice or value of a saved request that somebody else's may not have. typed: as above."""
    for group, option in request.choices.items():
        require_text(group, option)
        if "@" in group:
            raise SettingError(f"{group}={option}: {REMEDY}", group)
    for key, value in [*request.values.items(), *((key, None) for key in request.removed)]:
        for keys, item in _leaves(value, (key.lstrip("+"),)):
            if (name := ".".join(keys)) not in typed:
                require_allowed(name, item)


def require_allowed(key: str, value: Any) -> None:
    """Raise UserError unless somebody else's file or request may set a key to this value."""
    text = as_written(value)
    require_text(key, text)
    if key.startswith(PARAMETERS) and "._" not in key:  # with the sweeper, Hydra instantiates a _target_ within them
        name = key.removeprefix(PARAMETERS)  # an override of each job
        if name.startswith("~"):
            raise SettingError(f"{key}: a parameter is a setting, which cannot be left out", key)
        return require_allowed(name.lstrip("+"), value)
    form = next((form for keys, form in ALLOWED.items() if re.fullmatch(keys, key)), None)
    is_choice = key == "counts" and "${" not in text
    is_allowed = is_choice or (form is not None and re.fullmatch(form, text, re.IGNORECASE) is not None)
    if (GUARDED.match(key) or "@" in key) and not is_allowed:
        raise SettingError(f"{key}={text}: {REMEDY}", key)


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of nested dictionaries and lists with their keys; an interpolated part is one value too."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _leaves(value, (*path, str(key)))
    if not isinstance(node, dict | list):
        yield path, node
