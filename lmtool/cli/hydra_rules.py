"""What somebody else's YAML files and resumed lines may set of Hydra and of Spark, and Hydra's loader, which checks it.

Hydra instantiates each `_target_` of its callbacks, launcher and sweeper, Python's logging calls what `()` and `class`
name, `hydra.launcher.setup` and some of Spark's options are shell, and `options` is a folder of Python files. A user
who types such a setting runs their own code; a --config-dir or run folder made by somebody else must not run code. So
their words, and each of their files before it is composed, are checked against a list of keys, each with the form of
its values.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import HYDRA_TEXTS
from lmtool.cli.line_settings import LineSettings
from lmtool.cli.read_once import Kept, ReadOnce
from lmtool.cli.suggestions import unknown_key
from lmtool.config.model_verbs import SETTINGS
from lmtool.config.overrides import swept_values, unreadable
from lmtool.config.rules import as_written, require, require_text
from lmtool.config.settings import SettingError, with_current_names
from lmtool.errors import UserError, named
from lmtool.sweeps.job import REPEATED
from lmtool.sweeps.restart import all_overrides, is_grid

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
REFERENCE = re.compile(r"(?<=\$\{)(?!hydra\.)\.?\w[\w.]*(?=\})")  # a setting in an interpolation
PARAMETERS = "hydra.sweeper.params."
MAX_KEPT = 100  # composed configurations, some 100 KB each


class CheckedLoader(ConfigLoaderImpl):
    """Hydra's configuration loader, which replaces the earlier names of settings in YAML files by the current ones, and
    rejects files of somebody else with settings that they may not have (`ALLOWED`).

    An override of a sweep whose setting the options of a job lack is left out of that job; if no job has the setting,
    it is an error.

    line: whose overrides the user has typed, or may have from a line that is resumed.
    """

    # What options compose to and the files that it is made of, by the overrides that choose them; None the first time.
    _composed: ClassVar[dict[tuple[Any, ...], tuple[dict[str, ConfigResult | None], DictConfig] | None]] = {}

    def __init__(self, search_path: ConfigSearchPath, line: CommandLine) -> None:
        super().__init__(search_path)
        self.repository: ReadOnce = ReadOnce(search_path)
        self._line = line
        self._typed = {tuple(key.split(".")) for word in line.overrides for key, _ in _of_word(word)}
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
        """Return a configuration whose nodes the composed one can take over. Raises SettingError as `require_allowed`
        does, for a file of somebody else, and for one of Hydra's own that is put in the place of another.
        """
        loaded = super()._load_single_config(default, repo)
        package, group = default.package or "", str(default.config_path).rpartition("/")[0].replace("/", ".")
        is_moved = package.split(".")[0] == "hydra" and package != group
        if is_moved or loaded.provider == "command-line" or "searchpath" in loaded.provider:
            with named(f"{default.config_path}.yaml"):
                for path, value in _leaves(OmegaConf.to_container(loaded.config, resolve=False)):
                    if not any(path[: len(typed)] == typed for typed in self._typed):
                        require_allowed(".".join(path), value)
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
        """Compose a configuration. Raises UserError as `_load_single_config` does, and for a missing plugin."""
        is_sweep = run_mode is RunMode.MULTIRUN
        single = [word for word in overrides if not (is_sweep and swept_values(word))]
        kept = self._kept(single, overrides)
        composed = self._of_options(config_name, kept, run_mode)
        if composed is None:
            composed = super().load_configuration(config_name, kept, run_mode, from_shell, validate_sweep_overrides)
        if is_sweep:  # whose sweeper makes jobs of all overrides
            composed.hydra.overrides.task = [word for word in overrides if word not in composed.hydra.overrides.hydra]
            for part, kind in ("launcher", Launcher), ("sweeper", Sweeper):
                plugins = [f"{plugin.__module__}.{plugin.__name__}" for plugin in Plugins.instance().discover(kind)]
                key, rule = (
                    f"hydra.{part}._target_",
                    f"the class of an installed Hydra plugin; choose hydra/{part}=NAME",
                )
                require((name := OmegaConf.select(composed, key)) in plugins, key, name, rule)
        values: Any = OmegaConf.to_container(composed, resolve=False)
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


def require_allowed_word(word: str) -> None:
    """Raise UserError, as `require_allowed` does, for an override of a line that somebody else may have written."""
    for key, value in _of_word(word):
        require_allowed(key, value)


def require_allowed(key: str, value: Any) -> None:
    """Raise UserError unless somebody else's file or line may set a key to this value."""
    text = as_written(value)
    require_text(key, text)
    if key.startswith(PARAMETERS) and "._" not in key:  # with the sweeper, Hydra instantiates a _target_ within them
        word = f"{key.removeprefix(PARAMETERS)}={text}"  # an override of each job
        if word.startswith("~"):
            raise SettingError(f"{key}: a parameter is a setting, which cannot be left out", key)
        return require_allowed_word(word)
    form = next((form for keys, form in ALLOWED.items() if re.fullmatch(keys, key)), None)
    if (GUARDED.match(key) or "@" in key) and (form is None or re.fullmatch(form, text, re.IGNORECASE) is None):
        raise SettingError(
            f"{key}={text}: YAML files and resumed lines may not set this; if it is your own, write it on the command "
            "line",
            key,
        )


def _of_word(word: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys that an override sets, with their values. Raises UserError if it cannot be read."""
    try:
        parsed = OverridesParser.create().parse_override(word)
    except HydraException:
        raise unreadable(word) from None
    if "/" not in parsed.key_or_group or parsed.package is not None:
        for path, value in _leaves(parsed.value(), (parsed.get_key_element().lstrip("+~"),)):
            if path != ("counts",):  # the choice of an option, which sets no key within it
                yield ".".join(path), value


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of nested dictionaries and lists with their keys; an interpolated part is one value too."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _leaves(value, (*path, str(key)))
    if not isinstance(node, dict | list):
        yield path, node
