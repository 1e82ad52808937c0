"""Where a setting stands in the YAML files: file and line, for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from lmtool.cli.help_pages import EXPERIMENT, config_dir_of
from lmtool.cli.line_settings import LineSettings
from lmtool.cli.yaml_text import DEFAULT, default_items
from lmtool.config.options import conf_dir, yaml_files


def place_of(key: str, settings: LineSettings) -> str | None:
    """FILE:LINE of a setting that a line takes from a YAML file, by its whole key; None where it is not found."""
    for path, prefix in _files(key, settings):
        if key.startswith(prefix):
            line = _line(path, key.removeprefix(prefix).partition("[")[0].split("."))
            if line is not None:
                return f"{path}:{line}"
    return None


def place_of_default(option: str, settings: LineSettings) -> str | None:
    """FILE:LINE of an option in the defaults lists of the user's own YAML files; None where it is not found."""
    folder = config_dir_of(settings.words)
    for path in sorted(folder.rglob("*.yaml")) if folder else []:
        for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if re.search(rf"(^defaults:.*|^ +- .*)\b{re.escape(option)}\b", text):
                return f"{path}:{number}"
    return None


def _files(key: str, settings: LineSettings) -> Iterator[tuple[Path, str]]:
    """The YAML files that may set a key, the last merged first, each with the part of the key that it leaves out."""
    given = {word.partition("=")[0]: word.partition("=")[2] for word in settings.words}
    experiments = yaml_files(EXPERIMENT, beside=config_dir_of(settings.words))
    if given.get(f"+{EXPERIMENT}") in experiments:
        yield experiments[given[f"+{EXPERIMENT}"]], ""
    for group, option in settings.groups.items():
        files = yaml_files(group, beside=config_dir_of(settings.words))
        for name in _with_bases(option, files):
            yield files[name], f"{group}."
    for name in (settings.verb, "common"):
        yield conf_dir() / f"{name}.yaml", ""


def _with_bases(option: str, files: dict[str, Path]) -> list[str]:
    """An option and the ones that it starts from."""
    names = [option]
    for name in names:
        lines = files[name].read_text(encoding="utf-8", errors="replace").splitlines()
        items = [match for item in default_items(lines) if (match := DEFAULT.match(item))]
        bases = [item["name"] for item in items if item["option"] is None]
        names += [base for base in bases if base in files and base not in names]
    return names


def _line(path: Path, keys: list[str]) -> int | None:
    """The line of a nested key in a YAML file."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError):
        return None
    line = None
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            return None
        found = [(name, value) for name, value in node.value if name.value == key]
        if not found:
            return None
        name, node = found[-1]
        line = name.start_mark.line + 1
    return line
