"""What is known of an option, for its page: its docstring, its settings, the figures that were measured with it.

Nothing is written here: the docstring is that of the option's Python file, of which it has to have a formula, a source
and the complexity; the settings and their meaning are those of its YAML file, read as the help pages read them; types
are the dataclass's, and ranges what its own checks say of a value out of range.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lmtool.cli.yaml_text import DEFAULT, Entry, default_items, read
from lmtool.config.options import HOMES, conf_dir, settings_class, yaml_files
from lmtool.config.setting_types import SettingType, option_types
from lmtool.errors import UserError

ROOT = conf_dir().parent
FIGURES = ROOT / "scripts" / "results" / "options.toml"
ALIASES = re.compile(r" *Also known as: (?P<names>.*)$")
FIELD = re.compile(r"^(Source|Complexity): ", re.MULTILINE)
WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "dict": "names and values",
    "None": "null",
}
OUT_OF_RANGE: tuple[Any, ...] = (-1, -1.0, 1e300, [-1], [], "", "no such value")


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
        """The LaTeX of the formulas on lines of their own."""
        return re.findall(r"^\.\. math::\n\n((?:    .*\n|\n(?=    ))+)", self.body + "\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Setting:
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


@dataclass(frozen=True, slots=True)
class YamlPage:
    """What a YAML file says: the command it opens with, its description, the other names of the option, the option that
    a preset starts from, and the groups of its defaults list with the option each names.
    """

    command: str
    description: str
    aliases: str
    base: str | None
    groups: dict[str, str]


def docstring(group: str, kind: str) -> str:
    """Return the docstring of an option: that of its settings class if it names the source, else that of its module."""
    of_class = inspect.getdoc(settings_class(group, kind)) or ""
    if FIELD.search(of_class):
        return of_class
    for home in HOMES[group]:
        path = ROOT.joinpath(*home.split("."), f"{kind}.py")
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


def yaml_page(path: Path) -> YamlPage:
    """What the YAML file of an option or preset says, itself alone."""
    lines = path.read_text(encoding="utf-8").splitlines()
    text = read(path)
    aliases = ALIASES.search(text.description)
    described = text.description[: aliases.start()] if aliases else text.description
    items = [match for line in default_items(lines) if (match := DEFAULT.match(line))]
    bases = [item["name"] for item in items if item["option"] is None and item["name"] != "_self_"]
    command = lines[0].lstrip("# ") if lines[0].startswith("# ") else ""
    return YamlPage(command, described, aliases["names"] if aliases else "", bases[0] if bases else None, text.groups)


def entries(group: str, name: str, *, own: bool = False) -> list[Entry]:
    """The settings of an option; own: of a preset, those alone that differ."""
    files = yaml_files(group)
    kind = read(files[name], files).kind or name
    types = _types(group, kind)
    found = read(files[name], None if own else files).entries
    parents = {entry.path[:-1] for entry in found}
    free = {path for path in parents if path and _type_of(types, path).names == {"dict"}}
    return [
        entry for entry in found if entry.path[:-1] not in free and (entry.path not in parents or entry.path in free)
    ]


def settings(group: str, name: str, *, own: bool = False) -> list[Setting]:
    """The same with what each may be, and the meaning that a preset's base gives."""
    files = yaml_files(group)
    kind = read(files[name], files).kind or name
    types, all_entries = _types(group, kind), read(files[name], files).entries
    meanings = {entry.path: entry.comment for entry in all_entries}
    return [
        Setting(".".join(e.path), e.value, values_of(group, kind, e.path, _type_of(types, e.path)), meanings[e.path])
        for e in entries(group, name, own=own)
    ]


def _type_of(types: dict[str, SettingType], path: tuple[str, ...]) -> SettingType:
    found = types[path[0]].below(list(path[1:])) if path[0] in types else None
    return found or SettingType()


@cache
def _types(group: str, kind: str) -> dict[str, SettingType]:
    return option_types(group, kind)


def values_of(group: str, kind: str, path: tuple[str, ...], of: SettingType) -> str:
    """What a setting may be, in words: its range, if the option checks one; else its type."""
    if of.values:
        return " or ".join(f"`{value}`" for value in of.values) + (" or null" if "None" in of.names else "")
    rule = range_of(group, kind, path)
    if rule:
        whole = "whole, " if "int" in of.names else ""
        null = ", or null" if "None" in of.names and "null" not in rule else ""
        return f"{whole}{rule}{null}"
    names = [word for name, word in WORDS.items() if name in of.names]
    listed = [f"a list of {of.item.names and ', '.join(sorted(of.item.names))}"] if of.item is not None else []
    return " or ".join(listed + names)


@cache
def _option(group: str, kind: str) -> Any:
    """The settings of an option as an object, with those that a user must give set to a text."""
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(OmegaConf.load(yaml_files(group)[kind]))
    values = {key: "given" if value == "???" else value for key, value in values.items() if key != "defaults"}
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(settings_class(group, kind)), values))


@cache
def range_of(group: str, kind: str, path: tuple[str, ...]) -> str:
    """The rule that the message for a value out of range names; empty where no value is refused."""
    for wrong in OUT_OF_RANGE:
        changed = copy.deepcopy(_option(group, kind))
        holder = changed
        for name in path[:-1]:
            holder = getattr(holder, name)
        try:
            setattr(holder, path[-1], wrong)
            for checked in (holder, changed):
                getattr(checked, "__post_init__", lambda: None)()
        except UserError as error:
            said, _, rule = str(error).partition(": must be ")
            if rule and said.startswith(f"{group}.{'.'.join(path)}"):
                return rule
        except (AttributeError, TypeError, ValueError):
            continue  # a value of another type than the checks expect
    return ""


@cache
def _measured() -> dict[str, Any]:
    return tomllib.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}


def figures(group: str, name: str) -> Figures:
    """What was measured with an option."""
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
    files = yaml_files(group)
    return read(files[name], files).kind or name
