"""Rules for Hydra's settings in YAML files and resumed lines: none may name code, programs or files to run.

Hydra instantiates each `_target_` of its callbacks, launcher and sweeper, Python's logging calls what `()`, `class` and
`ext://` name, `hydra.job.env_set` changes where programs are looked for, and `hydra.launcher.setup` is shell. A user
who types such a setting runs their own code; a --config-dir or run folder made by somebody else must not run code. So
the composed settings are checked before Hydra uses them, each time that it composes: once for a line, and again for
each job of a sweep.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import IConfigRepository
from hydra.conf import HydraConf
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from lmtool.cli.arguments import CommandLine
from lmtool.cli.line_settings import HYDRA_TEXTS, LineSettings
from lmtool.cli.read_once import Kept, ReadOnce
from lmtool.cli.suggestions import unknown_key
from lmtool.config.model_verbs import SETTINGS
from lmtool.config.overrides import key_of, swept_values
from lmtool.config.settings import SettingError, with_current_names
from lmtool.errors import UserError
from lmtool.sweeps.job import REPEATED
from lmtool.sweeps.restart import all_overrides, is_grid

Path = tuple[str, ...]
OWN_CALLBACK = ("callbacks", "sweep", "_target_"), "lmtool.sweeps.sweep.Start"  # in conf/common.yaml
# Names, paths and texts: Hydra and lmtool only read, write or print them.
PLAIN = re.compile(
    r"(run\.dir|sweep\.(dir|subdir)|mode|output_subdir|verbose(\.\d+)?|(help|hydra_help|runtime|overrides)\..+"
    r"|job\.(name|chdir|id|num|config_name|override_dirname|config\.override_dirname\..+))"
)
# Numbers and names of resources; any other setting of a launcher or sweeper must have its default.
LAUNCHER = re.compile(
    r"launcher\.(n_jobs|backend|prefer|require|verbose|timeout|batch_size|max_nbytes|timeout_min|cpus_per_task"
    r"|gpus_per_node|tasks_per_node|mem_gb|nodes|name|stderr_to_stdout|partition|qos|comment|constraint|exclude|gres"
    r"|cpus_per_gpu|gpus_per_task|mem_per_gpu|mem_per_cpu|account|signal_delay_s|max_num_timeout|array_parallelism)"
)
SWEEPER = re.compile(
    r"sweeper\.(max_batch_size|direction(\.\d+)?|study_name|n_trials|n_jobs|max_failure_rate|params\.[^_].*"
    r"|search_space\.[^_].*|sampler\.[a-z]\w*)"
)
REFERENCE = re.compile(r"(?<=\$\{)(?!hydra\.)\.?\w[\w.]*(?=\})")  # a setting in an interpolation
TARGETS = {"launcher": "launcher", "sweeper": "sweeper", "sweeper.sampler": "sweeper/sampler"}  # plugin group by place
MAX_KEPT = 100  # composed configurations, some 100 KB each
LOGGING = ("job_logging", "hydra_logging")
LOGGING_TEXTS = {"version", "disable_existing_loggers", "format", "datefmt", "style", "level", "propagate", "formatter"}
LOGGING_TEXTS |= {"handlers", "filters", "root", "mode", "delay", "encoding", "log_colors", "loggers", "incremental"}
LOGGING_VALUES = {
    "class": {"logging.StreamHandler", "logging.FileHandler", "logging.NullHandler"},
    "()": {"colorlog.ColoredFormatter"},
    "stream": {"ext://sys.stdout", "ext://sys.stderr"},
    "filename": {"${hydra.runtime.output_dir}/${hydra.job.name}.log", "hydra-${hydra.job.name}.log"},
}


class CheckedLoader(ConfigLoaderImpl):
    """Hydra's configuration loader, which replaces the earlier names of settings in YAML files by the current ones, and
    rejects what `require_harmless` and `require_plugins` reject.

    An override of a sweep whose setting the options of a job lack is left out of that job; if no job has the setting,
    it is an error.

    typed: the overrides of the line that the user typed.
    """

    # What options compose to and the files that it is made of, by the overrides that choose them; None the first time.
    _composed: ClassVar[dict[tuple[Any, ...], tuple[dict[str, ConfigResult | None], DictConfig] | None]] = {}

    def __init__(self, search_path: ConfigSearchPath, line: CommandLine, typed: Sequence[str]) -> None:
        super().__init__(search_path)
        self.repository: ReadOnce = ReadOnce(search_path)
        self._line = line
        self._typed = tuple(typed)
        self._sweeps: dict[tuple[str, ...], LineSettings] = {}
        self._first: dict[tuple[str, ...], list[str]] = {}  # overrides that the first of equal jobs had, by those left

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        """Compose the YAML files; the line's overrides are applied to the result, so that their keys exist in it."""
        composed = super()._compose_config_from_defaults_list(defaults, repo)
        values = OmegaConf.to_container(composed, resolve=False)
        assert isinstance(values, dict) and self._line.verb is not None
        current = with_current_names(values, SETTINGS[self._line.verb])
        for earlier in values.keys() - current.keys():
            del composed[earlier]
        composed.update({name: value for name, value in current.items() if value != values.get(name)})
        return composed

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Return a configuration whose nodes the composed one can take over."""
        loaded = super()._load_single_config(default, repo)
        if loaded is repo.load_config(str(default.config_path)):  # as it was read
            return replace(loaded, config=copy.deepcopy(loaded.config))
        return loaded

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Compose a configuration. Raises SettingError as `require_harmless` and `require_plugins` do."""
        is_sweep = run_mode is RunMode.MULTIRUN
        single = [word for word in overrides if not (is_sweep and swept_values(word))]
        kept = self._kept(single, overrides)
        composed = self._of_options(config_name, kept, run_mode)
        if composed is None:
            composed = super().load_configuration(config_name, kept, run_mode, from_shell, validate_sweep_overrides)
        if is_sweep:  # whose sweeper makes jobs of all overrides
            composed.hydra.overrides.task = [word for word in overrides if word not in composed.hydra.overrides.hydra]
        values: Any = OmegaConf.to_container(composed, resolve=False)
        require_harmless(values["hydra"], self._typed)
        require_plugins(values["hydra"], run_mode)
        with flag_override(composed, ["struct", "readonly"], False):
            _rename_references(composed, values, LineSettings(self._line))
        return composed

    def _of_options(self, config_name: str | None, words: list[str], run_mode: RunMode) -> DictConfig | None:
        """Compose the options of a line, once while their files do not change, and set its values in the result.

        None if the line does more than that or its values cannot be set, so that Hydra composes it or raises its error.
        For lines that differ in values only, as a sweep's jobs, that takes half the time (EPYC, 2026-11).
        """
        parsed: list[Any] = OverridesParser.create().parse_overrides(words)
        groups = {word.key_or_group for word in parsed if self.repository.group_exists(word.key_or_group)}
        if not all(_is_simple(word, is_group=word.key_or_group in groups) for word in parsed):
            return None
        choices = [word.input_line for word in parsed if word.key_or_group in groups]
        sources = [(source.provider, source.full_path()) for source in self.get_sources()]
        key = (self._line.verb, config_name, run_mode, *choices, *sources)
        files, composed = self._composed.get(key) or ({}, None)
        if composed is None or any(self.repository.load_config(path) is not file for path, file in files.items()):
            self.repository.used.clear()
            composed = super().load_configuration(config_name, choices, run_mode)
            if all(isinstance(file, Kept | None) for file in self.repository.used.values()):
                if len(self._composed) > MAX_KEPT:
                    self._composed.clear()
                again = key in self._composed  # a process that composes once does not copy
                self._composed[key] = (dict(self.repository.used), copy.deepcopy(composed)) if again else None
        else:
            composed = copy.deepcopy(composed)
        try:
            for word in parsed:
                if word.key_or_group not in groups:
                    OmegaConf.update(composed, word.key_or_group, word.value())
        except OmegaConfBaseException:
            return None
        hydra, task = composed.hydra, [word for word in parsed if not word.is_hydra_override()]
        hydra.overrides.hydra = [word.input_line for word in parsed if word.is_hydra_override()]
        hydra.overrides.task = [word.input_line for word in task]
        hydra.runtime.cwd = os.getcwd()
        form = hydra.job.config.override_dirname
        hydra.job.override_dirname = get_overrides_dirname(task, form.exclude_keys, form.item_sep, form.kv_sep)
        return composed

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Compose the configuration of a sweep's job. Raises errors as `load_configuration` does, and
        ConfigCompositionException for an invalid option.
        """
        kept = self._kept(sweep_overrides, all_overrides(master_config))
        try:
            composed = super().load_sweep_config(master_config, kept)
        except ValueError as error:  # for a number as an option; in a single run Hydra raises its own error
            raise ConfigCompositionException(str(error)) from error
        if self._first.setdefault(tuple(kept), sweep_overrides) != sweep_overrides and is_grid(master_config):
            with open_dict(composed.hydra):
                composed.hydra.runtime.choices[REPEATED] = None
        return composed

    def _kept(self, words: list[str], sweep: list[str]) -> list[str]:
        """Return the overrides of a job whose settings its options have. sweep: all of the line and its sweeper.

        Raises UserError for a setting that the options of no job have.
        """
        here = LineSettings(replace(self._line, overrides=words))
        missing = [word for word in words if not here.has(word)]
        every = self._sweeps.setdefault(tuple(sweep), LineSettings(replace(self._line, overrides=sweep)))
        for word in missing:
            if not every.has(word):
                raise UserError(unknown_key(word, every))
        return [word for word in words if word not in missing]


def _is_simple(word: Override, *, is_group: bool) -> bool:
    """Return whether an override chooses one option of a group, or sets a setting other than most of Hydra's."""
    if word.is_sweep_override() or word.package is not None:
        return False
    if is_group:
        return word.type in (OverrideType.CHANGE, OverrideType.ADD) and isinstance(word.value(), str)
    is_own = word.key_or_group in HYDRA_TEXTS or not word.key_or_group.startswith("hydra")
    return is_own and word.type is OverrideType.CHANGE


def _rename_references(composed: DictConfig, values: dict[str, Any], settings: LineSettings) -> None:
    """Replace the earlier names of settings in interpolations and in a sweeper's parameters. values: of `composed`."""
    for path, value in _leaves(values):
        if not isinstance(value, str) or "${" not in value:
            continue
        *above, last = path
        node: Any = composed
        for part in above:
            node = node[int(part) if OmegaConf.is_list(node) else part]

        def current(found: re.Match[str], beside: str = ".".join(above)) -> str:
            prefix = beside if found[0].startswith(".") else ""
            return settings.current_name(prefix + found[0]).removeprefix(prefix)

        node[int(last) if OmegaConf.is_list(node) else last] = REFERENCE.sub(current, value)
    params = OmegaConf.select(composed, "hydra.sweeper.params")
    if isinstance(params, DictConfig):
        composed.hydra.sweeper.params = {
            settings.current_name(str(key)): value for key, value in params.items_ex(resolve=False)
        }


def require_no_search_path(line: CommandLine, typed: Sequence[str]) -> None:
    """Raise UserError if a resumed line adds to Hydra's search path: a pkg:// in it would be imported."""
    for word in line.overrides:
        if key_of(word).startswith("hydra.searchpath") and word not in typed:
            raise UserError(f"{word}: the folders that a resumed line reads YAML files from must be named again")


def require_harmless(hydra: dict[str, Any], typed: Sequence[str]) -> None:
    """Raise SettingError for a setting below `hydra` that may run code and is not among the typed overrides."""
    given = [key_of(word) for word in typed]
    defaults = _hydra_defaults()
    for path, value in _leaves(hydra):
        key = ".".join(("hydra", *path))
        if any(key == name or key.startswith(f"{name}.") for name in given if name.startswith("hydra.")):
            continue
        if (path in defaults and defaults[path] == value) or _is_harmless(path, value, hydra):
            continue
        shown = "..." if path[:2] == ("job", "env_set") else value  # env_copy puts the user's values there
        raise SettingError(
            f"{key}={shown}: YAML files and resumed lines may not choose what runs code, programs or logging to other "
            "places; if it is your own, write it on the command line",
            key,
        )


def require_plugins(hydra: dict[str, Any], run_mode: RunMode) -> None:
    """Raise SettingError for a launcher or sweeper that is not installed, and in a sweep for none."""
    plugins = {f"{plugin.__module__}.{plugin.__name__}" for plugin in Plugins.instance().discover()}
    for part in ("launcher", "sweeper"):
        node = hydra[part]
        if node is None and run_mode is RunMode.RUN:
            continue
        target = node.get("_target_") if isinstance(node, dict) else None
        if target not in plugins:
            key, rule = f"hydra.{part}._target_", f"the class of an installed Hydra plugin; choose hydra/{part}=NAME"
            raise SettingError(f"{key}={target}: must be {rule} instead", key)


@cache
def _hydra_defaults() -> dict[Path, Any]:
    """Return the values of Hydra's own settings; making them takes a twelfth of a composition."""
    return dict(_leaves(OmegaConf.to_container(OmegaConf.structured(HydraConf), resolve=False)))


def _leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values of nested dictionaries and lists with their keys; an interpolated part is one value too."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _leaves(value, (*path, str(index)))
    else:
        yield path, node


def _is_harmless(path: Path, value: Any, hydra: dict[str, Any]) -> bool:
    key = ".".join(path)
    if (path, value) == OWN_CALLBACK or PLAIN.fullmatch(key):
        return True
    if path[-1:] == ("_target_",):
        return value in _plugins(TARGETS.get(key.removesuffix("._target_")))
    if path[:1] == ("launcher",) or path[:1] == ("sweeper",):
        return _is_default(path, value, hydra) or (
            (LAUNCHER.fullmatch(key) or SWEEPER.fullmatch(key)) is not None and _is_plain(value)
        )
    if path[:1] in [(part,) for part in LOGGING]:
        return _is_plain_logging(path[1:], value)
    return False


def _is_default(path: Path, value: Any, hydra: dict[str, Any]) -> bool:
    """Return whether a setting of a launcher, sweeper or sampler has its plugin's default value."""
    *place, name = path
    node: Any = hydra
    for part in place:
        node = node[part] if isinstance(node, dict) else None
    target = node.get("_target_") if isinstance(node, dict) else None
    defaults = _plugins(TARGETS.get(".".join(place))).get(target, {})
    return name in defaults and defaults[name] == value


def _plugins(group: str | None) -> dict[Any, dict[str, Any]]:
    """Return the settings of a Hydra group's installed plugins, by their `_target_`."""
    store: Any = ConfigStore.instance().repo["hydra"]
    for part in group.split("/") if group else ["?"]:
        store = store.get(part, {})
    found: dict[Any, dict[str, Any]] = {}
    for item in store.values():
        values = OmegaConf.to_container(item.node, resolve=False) if not isinstance(item, dict) else None
        if isinstance(values, dict):
            found[values.get("_target_")] = {str(key): value for key, value in values.items()}
    return found


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, null or printable text without interpolation, which could be anything."""
    return not isinstance(value, str) or (value.isprintable() and "${" not in value and "://" not in value)


def _is_plain_logging(path: Path, value: Any) -> bool:
    names = [part for part in path if not part.isdecimal()]
    if not names:
        return False
    if names[-1] in LOGGING_VALUES:
        return value in LOGGING_VALUES[names[-1]]
    return (names[-1] in LOGGING_TEXTS and _is_plain(value)) or (names[-2:-1] == ["log_colors"] and _is_plain(value))
