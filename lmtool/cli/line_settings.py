"""The settings of a command line, from its verb and the options that it chooses, with their types and places."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import EXPERIMENT, chosen_groups, config_dir_of, is_group, option_text
from lmtool.commands import own_types
from lmtool.config.options import conf_dir, yaml_files
from lmtool.config.overrides import key_of, swept_values
from lmtool.config.types import SettingType, option_types
from lmtool.config.yaml_files import YamlFile, line_of, read
from lmtool.errors import UserError

# Hydra settings that are paths or names; the types of other Hydra settings are not known here.
HYDRA_TEXTS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name")


def with_current_names(line: CommandLine, *, noted: bool = False) -> CommandLine:
    """Return a line with the earlier names of settings replaced. noted: whether to print a note about each,
    and to raise UserError for a setting that has both names.
    """
    settings = LineSettings(line)
    overrides = []
    for word in line.overrides:
        key = key_of(word)
        name = settings.current_name(key)
        if noted and name != key:
            if any(key_of(other) == name for other in line.overrides):
                raise UserError(f"{word}: {key} is the earlier name of {name}, which is set too: remove one of the two")
            print(f"note: {key} has been renamed: write {name}", file=sys.stderr)
        overrides.append(word.replace(key, name, 1))
    return replace(line, overrides=overrides)


class LineSettings:
    """The settings of one command line."""

    def __init__(self, line: CommandLine) -> None:
        assert line.verb is not None, "a line without a verb has no settings"
        self.line, self.verb, self.words = line, line.verb, line.words

    @cached_property
    def _groups(self) -> dict[str, str] | None:
        try:
            return chosen_groups(self.verb, self.words)
        except UserError:
            return None

    @property
    def groups(self) -> dict[str, str]:
        """The groups in use, each with its option; empty if one of the choices is wrong."""
        return self._groups or {}

    @cached_property
    def jobs(self) -> list[LineSettings]:
        """The settings of as many of a sweep's jobs as it takes to have each option that any of its jobs uses."""
        words = {word.partition("=")[0]: word for word in self.line.overrides if self.is_group(key_of(word))}
        values = {key: swept_values(word, config_dir_of(self.words)) for key, word in words.items()}
        tried = {key: options for key, options in values.items() if options}
        if experiments := tried.get(f"+{EXPERIMENT}"):
            return [job for name in experiments for job in self._with(f"+{EXPERIMENT}={name}").jobs]
        jobs = [self._with(*(f"{key}={options.pop(0)}" for key, options in tried.items())) if tried else self]
        for job in jobs:  # which grows by the other options of each group, in the first job that has the group
            jobs += [job._with(f"{group}={option}") for group in job.groups for option in tried.pop(group, [])]
        return jobs

    def _with(self, *words: str) -> LineSettings:
        return LineSettings(replace(self.line, overrides=[*self.line.overrides, *words]))

    def has(self, word: str) -> bool:
        """Return whether the options of a job have the setting or group of an override, unless Hydra alone knows it."""
        key = key_of(word)
        if word.startswith("~") or re.match(r"hydra[./]|.*@|experiment$", key):
            return True
        return any(
            job._groups is None or (key in job.groups if self.is_group(key) else job.type_of(key) is not None)
            for job in self.jobs
        )

    @cached_property
    def top(self) -> dict[str, SettingType]:
        """The verb's own settings."""
        return own_types(self.verb)

    def is_group(self, key: str) -> bool:
        """Return whether a key is a group (Hydra's too) and not a setting."""
        return key not in self.top and ("/" in key or "@" in key or key == EXPERIMENT or is_group(key, self.words))

    def files(self, group: str) -> dict[str, Path]:
        """Return the YAML files of a group by option."""
        return yaml_files(group, beside=config_dir_of(self.words))

    def text(self, group: str, option: str) -> YamlFile:
        """Return the YAML file of an option: the groups that it chooses options of, and its settings."""
        return option_text(group, option, self.words)

    def kinds(self, group: str) -> dict[str, SettingType]:
        """Return a group's options that are not presets, each with its settings as the fields of one type; the verb's
        default comes first.
        """
        names = [name for name in self.files(group) if self.text(group, name).kind in (name, None)]
        default = read(conf_dir() / f"{self.verb}.yaml").groups.get(group)
        return {name: self.option(group, name) for name in sorted(names, key=lambda name: name != default)}

    def option(self, group: str, option: str) -> SettingType:
        """Return an option's settings as the fields of one type, which is free if they are unknown."""
        fields = option_types(group, self.text(group, option).kind or option)
        return SettingType(frozenset({group} if fields else ()), fields=fields)

    def type_of(self, key: str) -> SettingType | None:
        """Return a setting's type by its whole key, or None if the line has no such setting."""
        head, *path = key.split(".")
        if head == "hydra":
            return SettingType(frozenset({"str"} if key in HYDRA_TEXTS else ()))
        if head in self.top:
            return self.top[head].below(path)
        if head in self.groups:
            return self.option(head, self.groups[head]).below(path)
        return None if self.groups or not is_group(head, self.words) else SettingType()

    def current_name(self, key: str) -> str:
        """Return a key by its current name, if it is the earlier name of a setting; else the key unchanged."""
        group, _, rest = key.partition(".")
        names = dict.fromkeys(job.groups[group] for job in self.jobs if group in job.groups)
        options = [self.option(group, name) for name in names] if rest else []
        fields = [option.fields for option in options] if rest else [self.top]
        if any((rest or key) in types for types in fields):
            return key  # the current name of another option's setting, in a sweep over options
        for types in fields:
            for name, type_ in types.items():
                if type_.rule is not None and type_.rule.was == (rest or key):
                    return f"{group}.{name}" if rest else name
        return key

    def all_keys(self) -> list[str]:
        """Return the whole keys of all settings that hold no others, and of Hydra's folders."""
        options = {group: self.option(group, option) for group, option in self.groups.items()}
        keys = [*SettingType(fields=self.top).leaves(), *SettingType(fields=options).leaves()]
        return [key for key in keys if not key.endswith(".kind")] + list(HYDRA_TEXTS[:2])

    def place_of(self, key: str) -> str | None:
        """Return FILE:LINE of a setting, by its current or earlier name, that the line takes from a YAML file."""
        key = key.partition("[")[0]
        type_ = self.type_of(key)
        names = [key] if type_ is None or type_.rule is None else [key, key.rpartition(".")[0] + f".{type_.rule.was}"]
        for path, prefix in self._files():
            for name in names:
                line = line_of(path, name.removeprefix(prefix).split(".")) if name.startswith(prefix) else None
                if line is not None:
                    return f"{path}:{line}"
        return None

    def place_of_default(self, option: str) -> str | None:
        """Return FILE:LINE of an option in the defaults lists of the user's YAML files; None if it is not found."""
        folder = config_dir_of(self.words)
        for path in sorted(folder.rglob("*.yaml")) if folder else []:
            line = line_of(path, ["defaults", option])
            if line is not None:
                return f"{path}:{line}"
        return None

    def _files(self) -> Iterator[tuple[Path, str]]:
        """Iterate over the YAML files that may set a key, the last merged first, with the prefix of their keys."""
        given = {word.partition("=")[0]: word.partition("=")[2] for word in self.words}
        experiments = self.files(EXPERIMENT)
        if given.get(f"+{EXPERIMENT}") in experiments:
            yield experiments[given[f"+{EXPERIMENT}"]], ""
        for group, option in self.groups.items():
            files, names = self.files(group), [option]
            for name in names:  # and the files that it is based on
                yield files[name], f"{group}."
                names += [base for base in read(files[name]).bases if base in files and base not in names]
        for name in (self.verb, "common"):
            yield conf_dir() / f"{name}.yaml", ""
