"""What YAML files say: the settings with their values, meanings and lines, the defaults list, the opening comment.

Help pages, completion, error messages and the documentation read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from lmtool.config.options import EXPERIMENT, GROUP_MODULES, conf_dir, yaml_files
from lmtool.errors import UserError
from lmtool.system.terminal import nearest

HIDDEN = ("defaults", "hydra", "kind")  # keys of a YAML file that are not settings to show
EXAMPLE, OTHER_NAMES = "# Example:", "# Also known as:"
COMMENT = re.compile(r"[ :]*#.*")  # beside a key
COMMENTS = re.compile(r"[ ]*(?:#.*)?(?:\n +#.*)*")  # beside a value, and on the indented lines below


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in a YAML file. path: its keys from the outermost; value: as written; meaning: the comment beside it
    and on the indented lines below; line: that of the key.
    """

    path: tuple[str, ...]
    value: str
    meaning: str
    line: int


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


def read_yaml_text(path: Path) -> str:
    """Return the text of a YAML file, empty if it is missing. Raises UserError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from error


def read_opening(text: str) -> YamlFile:
    """Return what the opening comment of a YAML file says."""
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    lines = [line for line in comment if not line.startswith("# @")]
    examples, aliases = (
        tuple(line.removeprefix(label).strip() for line in lines if line.startswith(label))
        for label in (EXAMPLE, OTHER_NAMES)
    )
    sentences = [line.lstrip("# ") for line in lines if not line.startswith((EXAMPLE, OTHER_NAMES))]
    return YamlFile("".join(sentences[:1]), " ".join(sentences[1:]), "".join(aliases), examples)


def suggest_option(group: str, name: str, folders: Sequence[Path] = ()) -> str:
    """Return suggestions for a name that no option of a group has, as the end of an error message.

    Other tools' names for an option are in the opening comment of its YAML file, `# Also known as: mkn, ...`. Case and
    hyphens are ignored; a name with `*` is a pattern. folders: as in yaml_files.
    """
    files = yaml_files(group, folders)
    names = {option: [option, *read_opening(read_yaml_text(path)).aliases.split(",")] for option, path in files.items()}
    wanted = normalize_name(name)
    close = [option for option in names if wanted and wanted in map(normalize_name, names[option])]
    if not close:
        close = [option for option in names if any("*" in a and fnmatch(name, a.strip()) for a in names[option])]
        close = [f"{group}={option} {group}.train={name}" for option in close if os.path.isfile(name)] or close
    return f"; did you mean {' or '.join(close)}?" if close else nearest(name, files)


def normalize_name(name: str) -> str:
    """Return a name without case and punctuation."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def read_option(group: str, option: str, folders: Sequence[Path] = ()) -> YamlFile:
    """Read the YAML file of an option, with the settings of those it is based on. Raises UserError without one."""
    files = yaml_files(group, folders)
    if option in files:
        return read_yaml(files[option], files)
    if files:
        raise UserError(f"no {group}={option}{suggest_option(group, option, folders)}")
    raise UserError(f"no group {group!r}, of {group}={option}{nearest(group, GROUP_MODULES)}")


def complete_choices(verb: str, given: Mapping[str, str], folders: Sequence[Path] = ()) -> dict[str, str]:
    """Return the option of each group that a verb uses: that of `given`, else of its +experiment, else of the
    defaults lists. Raises UserError for one that does not exist. folders: as in yaml_files.
    """
    all_given, experiment = dict(given), given.get(f"+{EXPERIMENT}")
    if experiment is not None:
        all_given = read_option(EXPERIMENT, experiment, folders).groups | all_given
    choices: dict[str, str] = {}
    files = [read_yaml(conf_dir() / f"{verb}.yaml")]
    for file in files:  # which grows by those of the options
        for group, default in file.groups.items():
            choices[group] = all_given.get(group, default)
            below = read_option(group, choices[group], folders)
            files += [below] if below not in files else []
    return choices


def read_yaml(path: Path, group: Mapping[str, Path] | None = None) -> YamlFile:
    """Read a YAML file; a missing or invalid file has no settings.

    group: the files of its group, from which a preset inherits settings. Raises UserError if it is not UTF-8.
    """
    file = _parse_yaml_file(read_yaml_text(path))
    others = {name: other for name, other in (group or {}).items() if other != path}  # no file is its own base
    for name in file.bases:
        if name in others:
            base = read_yaml(others[name], others)
            meanings = {setting.path: setting.meaning for setting in base.settings}
            settings = {item.path: item for item in (*base.settings, *file.settings)}  # in the order of the base
            merged = [replace(item, meaning=item.meaning or meanings.get(key, "")) for key, item in settings.items()]
            file = replace(file, groups=base.groups | file.groups, settings=tuple(merged), kind=file.kind or base.kind)
    return file


@lru_cache(maxsize=256)  # a command reads each file some five times
def _parse_yaml_file(text: str) -> YamlFile:
    top = _parse_nodes(text)
    nodes = {str(key.value): value for key, value in top.value} if top.id == "mapping" else {}
    groups, bases = {}, []
    defaults = nodes.get("defaults")
    for item in defaults.value if defaults is not None and defaults.id == "sequence" else []:
        if item.id == "scalar":
            bases += [item.value] * (item.value != "_self_")
        for key, option in item.value if item.id == "mapping" else []:
            if key.id == option.id == "scalar":  # else composing reports it
                groups[key.value.rpartition(" ")[2].lstrip("/").partition("@")[0]] = option.value
    settings = tuple(_iterate_settings(top, (), text)) if nodes else ()
    kind = str(nodes["kind"].value) if "kind" in nodes else None
    return replace(read_opening(text), groups=groups, bases=tuple(bases), settings=settings, kind=kind)


def require_experiment(path: Path) -> None:
    """Raise UserError unless the settings of an experiment are global."""
    if re.search(r"^\s*#\s*@package\s+_global_\s*$", read_yaml_text(path), re.MULTILINE) is None:
        raise UserError(f"{path}: an experiment must begin with the line # @package _global_; add it")


def _parse_nodes(text: str | bytes) -> Any:
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
        if b"&" in text and size(_parse_nodes(text)) > MAX_NODES:
            raise UserError(f"{path}: its aliases expand to more than {MAX_NODES:,} values; write fewer")


def _iterate_settings(node: Any, above: tuple[str, ...], text: str) -> Iterator[Setting]:
    for key, value in node.value:
        keys = (*above, str(key.value))
        if keys[0] in HIDDEN:
            continue
        block = value.id != "scalar" and not value.flow_style
        start, end = value.start_mark.index, (key if block else value).end_mark.index
        written = "" if block else " ".join(line.strip() for line in text[start:end].splitlines())
        comment = (COMMENT if block else COMMENTS).match(text, end)
        comments = [line.lstrip(" :#") for line in comment[0].splitlines()] if comment is not None else []
        yield Setting(keys, written, " ".join(comments).strip(), key.start_mark.line + 1)
        if block and value.id == "mapping":
            yield from _iterate_settings(value, keys, text)
