"""The settings that a command line has: its verb's, and those of the options that it chooses, with their types.

Only the standard library is imported here, as completion asks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import EXPERIMENT, VERBS, chosen_groups, config_dir_of, is_group, option_text
from lmtool.cli.yaml_text import read
from lmtool.config.options import conf_dir, yaml_files
from lmtool.config.setting_types import SettingType, option_types, verb_types
from lmtool.errors import UserError

# Hydra's settings that are paths or names; of its others the types are not known here.
HYDRA_TEXTS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name")


class LineSettings:
    """The settings of one command line."""

    def __init__(self, line: CommandLine) -> None:
        assert line.verb is not None, "a line without a verb has no settings"
        self.verb, self.words = line.verb, line.words

    @cached_property
    def groups(self) -> dict[str, str]:
        """The groups in use, each with its option; empty where one of the choices is wrong."""
        try:
            return chosen_groups(self.verb, self.words)
        except UserError:
            return {}

    @cached_property
    def top(self) -> dict[str, SettingType]:
        """The verb's own settings."""
        return verb_types(self.verb)

    @property
    def prose(self) -> str | None:
        """The key whose value is text to read, not a path."""
        argument = VERBS[self.verb].argument
        return argument if argument == "text" else None

    def is_group(self, key: str) -> bool:
        """Whether a key is a group, Hydra's own among them, and not a setting."""
        return key not in self.top and ("/" in key or "@" in key or key == EXPERIMENT or is_group(key, self.words))

    def kinds(self, group: str) -> dict[str, SettingType]:
        """The options of a group that are no presets, each with its settings as the fields of one type; first the one
        that the verb takes by itself.
        """
        files = yaml_files(group, beside=config_dir_of(self.words))
        names = [name for name in files if self._kind(group, name) == name]
        default = read(conf_dir() / f"{self.verb}.yaml").groups.get(group)
        return {name: self.option(group, name) for name in sorted(names, key=lambda name: name != default)}

    def option(self, group: str, option: str) -> SettingType:
        """The settings of an option as the fields of one type, which is free where they are not known."""
        fields = option_types(group, self._kind(group, option))
        return SettingType(frozenset({group} if fields else ()), fields=fields)

    def chooses(self, group: str) -> bool:
        """Whether the line names an option of a group."""
        return any(word.startswith(f"{group}=") for word in self.words)

    def chosen(self, group: str) -> list[str]:
        """The options of a group in use: the several of a sweep."""
        given = [word.partition("=")[2] for word in self.words if word.startswith(f"{group}=")]
        names = given[-1].split(",") if given else [self.groups[group]]
        return [name for name in names if self.has_option(group, name)]

    def chosen_by(self, group: str, option: str) -> dict[str, str]:
        """The groups that an option chooses options of, as model=ngram does for smoother."""
        return option_text(group, option, self.words).groups

    def has_option(self, group: str, name: str) -> bool:
        """Whether a group has an option of this name."""
        return name in yaml_files(group, beside=config_dir_of(self.words))

    def _kind(self, group: str, option: str) -> str:
        return option_text(group, option, self.words).kind or option

    def type_of(self, key: str) -> SettingType | None:
        """The type of a setting by its whole key; None where the line has no such setting."""
        head, *path = key.split(".")
        if head == "hydra":
            return SettingType(frozenset({"str"} if key in HYDRA_TEXTS else ()))
        if head in self.top:
            return self.top[head].below(path)
        if head in self.groups:
            return self.option(head, self.groups[head]).below(path)
        return None if self.groups or not is_group(head, self.words) else SettingType()

    def all_keys(self) -> list[str]:
        """The whole keys of all settings, without those that hold others, and Hydra's folders."""
        options = {group: self.option(group, option) for group, option in self.groups.items()}
        keys = [*leaves(SettingType(fields=self.top)), *leaves(SettingType(fields=options))]
        return [key for key in keys if not key.endswith(".kind")] + list(HYDRA_TEXTS[:2])


def leaves(type: SettingType) -> Iterator[str]:
    """The keys inside a setting, those of the innermost settings."""
    for name, inner in type.fields.items():
        if inner.fields:
            yield from (f"{name}.{key}" for key in leaves(inner))
        else:
            yield name
