"""What YAML files say: the settings with their values, meanings and lines, the defaults list, the opening comment.

Help pages, completion, error messages and the documentation read it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from lmtool.errors import UserError

HIDDEN = ("defaults", "hydra", "kind")  # keys of a YAML file that are not settings to show
EXAMPLE, OTHER_NAMES = "# Example:", "# Also known as:"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in a YAML file. path: its keys from the outermost; value: as written; meaning: the comment beside it
    and on the indented lines below; line: line number from 1; node: the value as PyYAML's node.
    """

    path: tuple[str, ...]
    value: str
    meaning: str
    file: Path
    line: int
    node: Any


@dataclass(frozen=True, slots=True)
class YamlFile:
    """The content of a YAML file.

    title, description, aliases, examples: from its opening comment, which begins with the title: a command, or what a
    verb reads and makes. groups: the option of each group in its defaults list;
    bases: files of its group that it extends. settings: outer ones first. kind: the kind of an option.
    """

    title: str = ""
    description: str = ""
    aliases: str = ""
    examples: tuple[str, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)
    bases: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    kind: str | None = None


def text_of(path: Path) -> str:
    """Return the text of a YAML file, empty if it is missing. Raises UserError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from error


def opening(text: str) -> YamlFile:
    """Return what the opening comment of a YAML file says."""
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    lines = [line for line in comment if not line.startswith("# @")]
    labelled = {
        label: [line.removeprefix(label).strip() for line in lines if line.startswith(label)]
        for label in (OTHER_NAMES, EXAMPLE)
    }
    said = [line.lstrip("# ") for line in lines if not line.startswith(tuple(labelled))]
    examples = tuple(labelled[EXAMPLE])
    return YamlFile("".join(said[:1]), " ".join(said[1:]), "".join(labelled[OTHER_NAMES]), examples)


def read(path: Path, group: Mapping[str, Path] | None = None) -> YamlFile:
    """Read a YAML file; a missing or invalid file has no settings.

    group: the files of its group, from which a preset inherits settings. Raises UserError if it is not UTF-8.
    """
    file = _read(path, text_of(path))
    groups, settings, kind = file.groups, list(file.settings), file.kind
    for base in [name for name in file.bases if group is not None and name in group and group[name] != path]:
        assert group is not None
        below = read(group[base], group)
        groups, settings, kind = below.groups | groups, _merged(below.settings, settings), kind or below.kind
    return replace(file, groups=groups, settings=tuple(settings), kind=kind)


@lru_cache(maxsize=256)  # a command reads each file some five times
def _read(path: Path, text: str) -> YamlFile:
    top = _composed(text)
    nodes = {str(key.value): value for key, value in top.value} if top.id == "mapping" else {}
    groups, bases = _defaults(nodes["defaults"]) if "defaults" in nodes else ({}, [])
    settings = tuple(_settings(top, (), path, [*text.splitlines(), ""])) if nodes else ()  # a mark may be at the end
    kind = str(nodes["kind"].value) if "kind" in nodes else None
    return replace(opening(text), groups=groups, bases=tuple(bases), settings=settings, kind=kind)


def _defaults(node: Any) -> tuple[dict[str, str], list[str]]:
    """Return the options of a defaults list by group, and its names without a group."""
    groups, bases = {}, []
    for item in node.value if node.id == "sequence" else []:
        if isinstance(item.value, str):
            bases.append(item.value)
        elif len(item.value) == 1 and item.id == "mapping":
            ((key, value),) = item.value
            option = value.value if isinstance(value.value, str) else "..."
            groups[str(key.value).rpartition(" ")[2].lstrip("/").partition("@")[0]] = option
    return groups, [name for name in bases if name != "_self_"]


def require_experiment(path: Path, used: Container[str]) -> None:
    """Raise UserError unless an experiment's settings are global and its defaults list overrides the groups in use."""
    text = text_of(path)
    if re.search(r"^\s*#\s*@package\s+_global_\s*$", text, re.MULTILINE) is None:
        raise UserError(f"{path}: an experiment must begin with the line # @package _global_; add it")
    top = _composed(text)
    lists = [value for key, value in top.value if key.value == "defaults"] if top.id == "mapping" else []
    for item in lists[0].value if lists and lists[0].id == "sequence" else []:
        for key, value in item.value if item.id == "mapping" else []:
            *marks, group = str(key.value).split() or [""]
            found = group.startswith("/") or "optional" in marks or (path.parent / group.partition("@")[0]).is_dir()
            is_used = group[1:] in used or group.startswith("/hydra/")
            right = found and {*marks} <= {"override", "optional"} and ("override" in marks or not is_used)
            if isinstance(key.value, str) and not right:
                option = value.value if isinstance(value.value, str) else "..."
                meant = f"{'' if '@' in group else 'override '}/{group.lstrip('/')}: {option}"
                raise UserError(f"{path}:{key.start_mark.line + 1}: {key.value}: {option}: write {meant}")


def line_of(path: Path, keys: list[str]) -> int | None:
    """Return the line of a nested key in a YAML file, or None if it has no such key.

    For `defaults` and an option, it is the line of the defaults list that names the option.
    """
    node, line = _composed(text_of(path)), None
    for key in keys:
        items = node.value if isinstance(node.value, list) else []
        if node.id == "sequence":  # of names, and of groups with a name each
            items = [(item.value[0][1] if item.id == "mapping" and item.value else item, item) for item in items]
        found = [(name, value) for name, value in items if name.value == key]
        if not found:
            return None
        line, node = found[-1][0].start_mark.line + 1, found[-1][1]
    return line


def _composed(text: str | bytes) -> Any:
    """Return the root node of a YAML text; an empty mapping for an invalid one, which composing settings reports."""
    import yaml

    with suppress(yaml.YAMLError):
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or yaml.MappingNode("", [])
    return yaml.MappingNode("", [])


MAX_NODES = 1_000_000  # of a YAML file once its aliases are expanded, as OmegaConf does it


def require_bounded_aliases(path: Path) -> None:
    """Raise UserError if the aliases in a YAML file expand beyond MAX_NODES values; an invalid file is left alone."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1  # an alias inside its own anchor is another error
            items = node.value if isinstance(node.value, list) else []
            parts = [part for item in items for part in (item if isinstance(item, tuple) else (item,))]
            sizes[id(node)] = 1 + sum(map(size, parts))
        return sizes[id(node)]

    with suppress(OSError, ValueError, RecursionError):
        text = path.read_bytes()
        if b"&" in text and size(_composed(text)) > MAX_NODES:
            raise UserError(f"{path}: its aliases expand to more than {MAX_NODES:,} values; write fewer")


def _settings(node: Any, above: tuple[str, ...], path: Path, lines: list[str]) -> Iterator[Setting]:
    for key, value in node.value:
        keys = (*above, str(key.value))
        if keys[0] in HIDDEN:
            continue
        nested = value.id == "mapping" and not value.flow_style
        block = nested or (value.id == "sequence" and not value.flow_style)
        start, end = (value.start_mark, value.end_mark) if not block else (key.end_mark, key.end_mark)
        written = " ".join(line.strip() for line in _between(lines, start, end)) if not block else ""
        rest = lines[end.line][end.column :].lstrip(": ")
        comments = [rest.partition("#")[2]] if "#" in rest else []
        for line in lines[end.line + 1 :] if not block else []:
            if not line.startswith(" ") or not line.lstrip().startswith("#"):
                break
            comments.append(line.lstrip(" #"))
        meaning = " ".join(comment.strip() for comment in comments)
        yield Setting(keys, written, meaning, path, key.start_mark.line + 1, value)
        if nested:
            yield from _settings(value, keys, path, lines)


def _between(lines: list[str], start: Any, end: Any) -> list[str]:
    if start.line == end.line:
        return [lines[start.line][start.column : end.column]]
    return [lines[start.line][start.column :], *lines[start.line + 1 : end.line], lines[end.line][: end.column]]


def _merged(base: tuple[Setting, ...], own: list[Setting]) -> list[Setting]:
    changed = {setting.path: setting for setting in own}
    merged = []
    for setting in base:
        new = changed.pop(setting.path, setting)
        merged.append(replace(new, meaning=new.meaning or setting.meaning))
    return merged + list(changed.values())
