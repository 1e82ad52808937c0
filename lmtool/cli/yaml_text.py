"""The keys of a YAML file as written, with their comments: for help pages and completion.

Only the standard library is imported here, so that a page appears without delay. A preset, whose defaults list starts
from another YAML file of its group, has that file's keys with its own values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lmtool.errors import UserError

ENTRY = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<rest>.*)")
MORE = re.compile(r" +# *(?P<more>.*)")
KIND = re.compile(r"kind: *(?P<kind>\w+)")
FLOW_ITEM = re.compile(r"\{[^}]*\}|[^,\s]+")
FLOW = re.compile(r"defaults: *\[(?P<items>.*)\]")
DEFAULT = re.compile(r"\s*- (?:override )?/?(?P<name>\w+)(?:@\S+)?(?:: *(?P<option>\w+))?\s*$")
HIDDEN = ("defaults", "hydra", "kind")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a YAML file. path: its keys from the outermost; value: as written; comment: without the `#`, with that
    of indented lines which follow and are comment alone.
    """

    path: tuple[str, ...]
    value: str
    comment: str


@dataclass(frozen=True, slots=True)
class YamlText:
    """A YAML file. description: the comment it opens with, without the first line, the command; groups: of its defaults
    list, with the option each names; entries: its keys, outer ones first; kind: of an option, None for other files.
    """

    description: str
    groups: dict[str, str]
    entries: list[Entry]
    kind: str | None


def read(path: Path, group: Mapping[str, Path] | None = None) -> YamlText:
    """Parse a YAML file; a missing one is empty. group: the files of its group, one of which it may start from.

    Raises UserError for what is not UTF-8 text.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from error
    groups: dict[str, str] = {}
    entries: list[Entry] = []
    kind: str | None = None
    for line in default_items(lines):
        default = DEFAULT.match(line)
        if default is None:
            continue
        name, option = default["name"], default["option"]
        if option is not None:
            groups[name] = option
        elif group is not None and name in group and group[name] != path:
            base = read(group[name], group)
            groups, entries, kind = base.groups | groups, base.entries, base.kind
    for line in lines:
        own = KIND.match(line)
        kind = own["kind"] if own else kind
    return YamlText(_description(lines), groups, _merged(entries, _entries(lines)), kind)


def default_items(lines: list[str]) -> list[str]:
    """The items of the defaults list, one a line."""
    inside, items = False, []
    for line in lines:
        if re.match(r"\w", line):
            inside = line.startswith("defaults:")
            flow = FLOW.match(line)
            items += [f"- {item.strip('{} ')}" for item in FLOW_ITEM.findall(flow["items"])] if flow else []
        elif inside:
            items.append(line)
    return items


def _entries(lines: list[str]) -> list[Entry]:
    entries: list[Entry] = []
    open_keys: list[tuple[int, str]] = []
    for line in lines:
        entry, more = ENTRY.match(line), MORE.match(line)
        if more is not None and entries and open_keys[0][1] not in HIDDEN:
            entries[-1] = replace(entries[-1], comment=f"{entries[-1].comment} {more['more']}".strip())
        if entry is None:
            continue
        indent = len(entry["indent"])
        while open_keys and open_keys[-1][0] >= indent:
            open_keys.pop()
        open_keys.append((indent, entry["key"]))
        path = tuple(key for _, key in open_keys)
        if path[0] not in HIDDEN:
            value, _, comment = entry["rest"].partition(" #")
            entries.append(Entry(path, value.strip(), comment.strip()))
    return entries


def _merged(base: list[Entry], entries: list[Entry]) -> list[Entry]:
    changed = {entry.path: entry for entry in entries}
    merged = []
    for entry in base:
        new = changed.pop(entry.path, None)
        merged.append(entry if new is None else replace(entry, value=new.value, comment=new.comment or entry.comment))
    return merged + list(changed.values())


def _description(lines: list[str]) -> str:
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            comment.append(line.lstrip("# "))
    return " ".join(comment[1:])
