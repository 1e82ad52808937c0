"""What is known of an option, for its page: its docstring, its settings, the figures that were measured with it.

Nothing is written here: the docstring is that of the option's Python file, of which it has to have a formula, a source
and the complexity; the settings, their meaning, types and ranges are those that the help pages show, too.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from lmtool.config.options import GROUP_MODULES, conf_dir, settings_class, yaml_files
from lmtool.config.types import SettingType, field_types
from lmtool.config.yaml_files import YamlFile, read_option, read_yaml

ROOT = conf_dir().parent
FIGURES = ROOT / "scripts" / "results" / "options.toml"
FIELD = re.compile(r"^(Source|Complexity): ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OptionText:
    """A docstring in its parts: the first sentence; the formula and what explains it, still in reST; the source of the
    method, and its complexity, empty where the docstring does not say.
    """

    title: str
    body: str
    source: str
    complexity: str

    @property
    def formulas(self) -> list[str]:
        """Return the LaTeX of the displayed formulas."""
        return re.findall(r"^\.\. math::\n\n((?:    .*\n|\n(?=    ))+)", self.body + "\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """A setting: its name without the group; its value as the YAML file writes it; what it may be; what it does."""

    name: str
    value: str
    values: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A perplexity of the Penn Treebank's valid split. settings: what is added to the command that the rows of a group
    share; command: the whole one, where it is another. note: what is to be known of it.
    """

    perplexity: str
    settings: str
    command: str
    note: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of an option. command: what their rows share; by: what printed them; note: what is to be known of
    those of the group; compared: the one that is set beside those of the group's other options.
    """

    rows: list[Figure]
    command: str
    by: str
    note: str
    compared: Figure | None


def docstring(group: str, kind: str) -> str:
    """Return the docstring of an option: that of its settings class if it names the source, else that of its module."""
    of_class = inspect.getdoc(settings_class(group, kind)) or ""
    if FIELD.search(of_class):
        return of_class
    for home in GROUP_MODULES[group]:
        path = ROOT.joinpath(*home.split(".")[:-1], f"{kind}.py")
        if path.is_file():
            return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return of_class


def option_text(docstring: str) -> OptionText:
    """Return the parts of the docstring of an option."""
    before, *fields = FIELD.split(docstring)
    said = dict(zip(fields[::2], fields[1::2], strict=True))
    title, _, body = before.strip().partition("\n\n")
    source, complexity = (" ".join(said.get(name, "").split()) for name in ("Source", "Complexity"))
    return OptionText(" ".join(title.split()), body.strip(), source, complexity)


def file_of(group: str, name: str, *, own: bool = False) -> YamlFile:
    """Return the YAML file of an option or preset, with the settings that it starts from unless `own`."""
    return read_yaml(yaml_files(group)[name]) if own else read_option(group, name)


def settings(group: str, name: str, *, own: bool = False) -> list[Row]:
    """Return the settings of an option, or with `own` those that a preset changes, with what each may be."""
    whole = file_of(group, name)
    types = SettingType(fields=field_types(settings_class(group, whole.kind or name)))
    meanings = {setting.path: setting.meaning for setting in whole.settings}
    parents = {setting.path[:-1] for setting in whole.settings}
    free = {path for path in parents if path and _type_of(types, path).names == {"dict"}}
    return [
        Row(".".join(item.path), item.value, values_of(_type_of(types, item.path)), meanings[item.path])
        for item in (file_of(group, name, own=True) if own else whole).settings
        if item.path[:-1] not in free and (item.path not in parents or item.path in free)
    ]


def _type_of(types: SettingType, path: tuple[str, ...]) -> SettingType:
    return types.below(list(path)) or SettingType()


def values_of(of: SettingType) -> str:
    """Return what a setting may be, in words: the members of an enumeration, else its range or type."""
    if of.values:
        return " or ".join(f"`{value}`" for value in of.values) + (" or null" if "None" in of.names else "")
    return f"whole, {of.allowed}" if "int" in of.names and of.bounds else of.allowed


@cache
def _measured() -> dict[str, Any]:
    return tomllib.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}


def figures(group: str, name: str) -> Figures:
    """Return the figures measured with an option."""
    measured = _measured().get(group, {})
    rows = [
        Figure(row["perplexity"], row.get("settings", ""), row.get("command", ""), row.get("note", ""))
        for row in measured.get("rows", {}).get(name, [])
    ]
    command = measured.get("command", "").replace("OPTION", name)
    alike = [row for row in rows if row.settings in measured.get("compared", []) and not row.command]
    return Figures(rows, command, measured.get("by", ""), measured.get("note", ""), alike[0] if alike else None)


def kind_of(group: str, name: str) -> str:
    """Return the option that a YAML file configures, itself or as a preset."""
    return file_of(group, name).kind or name
