"""The reference of the command line, from the same YAML files and comments as `lmtool VERB --help`.

A page that has the line {{ commands }} gets a section for each verb in its place, and {{ groups }} the options of each
group: nothing is written twice, and no process is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lmtool.cli import help_pages
from lmtool.commands import bare_setting, verbs
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, conf_dir
from lmtool.config.yaml_files import Setting, complete_choices, read_yaml

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table of cells that are Markdown."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows), ""]


def code(text: str) -> str:
    """Text as it is typed."""
    return f"`{text}`" if text else ""


def prose(text: str) -> str:
    """Return a comment of a YAML file as Markdown, with markup characters escaped."""
    return "".join(f"\\{letter}" if letter in "*_<>[]$~`" else letter for letter in text)


def keys(settings: Iterable[Setting]) -> list[str]:
    """Return the table of the keys of a YAML file: name, default, meaning."""
    rows = [(code(".".join(item.path)), code(item.value), prose(item.meaning)) for item in settings]
    return table(("key", "default", "meaning"), rows) if rows else []


def verb_section(verb: str) -> list[str]:
    """Return the section of a verb: what it does, examples, groups with their default option, keys."""
    bare = bare_setting(verb)
    text = read_yaml(conf_dir() / f"{verb}.yaml")
    choices = complete_choices(verb, {})
    lines = [f"(verb-{verb})=", f"### {verb}", "", f"{prose(text.title)}.", ""]
    lines += ["```sh", *text.examples, "```", "", prose(text.description), ""]
    if bare:
        lines += [f"Words without `=` are `{bare[0]}`.", ""]
    if choices:
        rows = [
            (f"[`{group}=`](#group-{group})", code(option))
            for group, option in choices.items()
            if group in GROUP_MODULES
        ]
        rows += [(code(f"{group}="), code(option)) for group, option in choices.items() if group not in GROUP_MODULES]
        lines += table(("group", "default"), rows)
    return lines + keys(text.settings)


def commands() -> str:
    """Return the sections of all verbs, as Markdown, and the keys that all have."""
    lines: list[str] = []
    for verb in verbs():
        lines += verb_section(verb)
    lines += ["### Keys of every verb", "", *keys(read_yaml(conf_dir() / "common.yaml").settings)]
    return "\n".join(lines)


def groups() -> str:
    """Return the options of each group, as Markdown."""
    lines: list[str] = []
    for group in [*GROUP_MODULES, EXPERIMENT]:
        given = group if group in GROUP_MODULES else f"+{group}"
        lines += [f"(group-{group})=", f"### {given}=", ""]
        lines += table(
            ("option", "what"), [(code(name), prose(what)) for name, what in help_pages.describe_options(group).items()]
        )
    return "\n".join(lines)


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """source-read: put the sections where the page wants them."""
    for mark, made in (("{{ commands }}", commands), ("{{ groups }}", groups)):
        if mark in source[0]:
            source[0] = source[0].replace(mark, made())
            for path in conf_dir().rglob("*.yaml"):
                app.env.note_dependency(str(path))


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx call `fill`."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
