"""lmtool's docstrings as Sphinx reads them.

The source says of arguments `name: what it is.`, in running text. Here these sentences become a list of parameters,
beside which autodoc puts the types of the annotations.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# What is in an array, docstrings say.
ARRAY = re.compile(r"(~?numpy\.ndarray)\[~?(?:tuple\[[^]]*\]|\w+), ~?numpy\.dtype\[[^]]*\]\]")
# A name, or several, and a colon: at the start of a paragraph or after a sentence or clause.
NAMES = re.compile(r"(?:^|(?<=[.;)] ))(?P<names>\*{0,2}\w+(?:, \w+)*): (?=\S)")


def names_of(described: object) -> list[str]:
    """Return the parameters of a function or class in their order, including the fields of a dataclass."""
    names: list[str] = []
    if dataclasses.is_dataclass(described):
        names += [field.name for field in dataclasses.fields(described)]
    if inspect.isclass(described) or inspect.isroutine(described):
        with suppress(ValueError, TypeError):  # a class made by another language has no signature
            names += inspect.signature(described).parameters
    return [name for name in dict.fromkeys(names) if name != "self" and not name.startswith("_")]


def with_parameters(lines: list[str], names: list[str]) -> list[str]:
    """Return the lines of a docstring, with `name: text` of the given names as fields `:param name: text`, in the order
    of the names.

    Paragraphs that are indented, or are directives or lists, stay as they are.
    """
    out: list[str] = []
    meanings: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if re.match(r"\s|\.\. |[-*] |:|>>>", paragraph) or paragraph.endswith("::"):
            out += [*paragraph.splitlines(), ""]
            continue
        text = re.sub(r"\n *", " ", paragraph)
        found = [m for m in NAMES.finditer(text) if all(n.strip() in names for n in m["names"].split(","))]
        before = text[: found[0].start()].strip() if found else text
        out += [before, ""] if before else []
        for match, after in zip_longest(found, found[1:]):
            meaning, raised = _cut_raises(text[match.end() : after.start() if after else None].strip())
            first, *others = (name.strip() for name in match["names"].split(","))
            meanings.setdefault(first, meaning)
            for name in others:
                meanings.setdefault(name, f"see {first}")
            out += [raised, ""] if raised else []
    fields = [f":param {name}: {_plain(meanings.get(name, ''))}".rstrip() for name in names] if meanings else []
    return [*out, *fields, *([""] if fields else [])]


def _plain(meaning: str) -> str:
    """Escape what is markup: a beginning like `D.` or `1)`, of a numbered list, and a link like `lm_`."""
    return re.sub(r"^(?=\w+[.)](\s|$))|(?<=[^\W_])(?=_(\s|$))", r"\\", meaning)


def _cut_raises(meaning: str) -> tuple[str, str]:
    """Split a description before the sentence that says what is raised."""
    at = re.search(r"(?<=\. )Raises [A-Z]\w+|^Raises [A-Z]\w+", meaning)
    return (meaning[: at.start()].strip(), meaning[at.start() :]) if at else (meaning, "")


def process(app: Sphinx, what: str, name: str, described: Any, options: Any, lines: list[str]) -> None:
    """autodoc-process-docstring: change the lines in place."""
    of_python = "Create new instance of "  # what a NamedTuple's constructor says of itself
    lines[:] = with_parameters([line for line in lines if not line.startswith(of_python)], names_of(described))


def short_types(app: Sphinx, domain: str, kind: str, content: Any) -> None:
    """object-description-transform, before autodoc writes the types it has recorded: those of arrays are one word."""
    for types in app.env.current_document.autodoc_annotations.values():
        types.update({name: ARRAY.sub(r"\1", text) for name, text in types.items()})


def skip(app: Sphinx, what: str, name: str, member: Any, skipped: bool, options: Any) -> bool | None:
    """autodoc-skip-member: leave out the fields of a NamedTuple, which its own docstring describes."""
    return True if (getattr(member, "__doc__", "") or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Have autodoc call these."""
    app.connect("object-description-transform", short_types, priority=400)
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
