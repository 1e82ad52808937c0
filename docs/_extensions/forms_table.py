"""The table of fast forms, from the registry: a page gets it instead of the line {{ forms }}."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from command_pages import code, table

from lmtool.neural.forms import Form, registered

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def condition(form: Form) -> str:
    """Return the expression that decides whether a form serves, as its function or lambda returns it."""
    nodes = list(ast.walk(ast.parse(dedent(inspect.getsource(form.serves)))))
    returned = [node.value or node for node in nodes if isinstance(node, ast.Return)]
    return ast.unparse([*(node.body for node in nodes if isinstance(node, ast.Lambda)), *returned][-1])


def forms() -> str:
    """Return the table as Markdown: what each form replaces, its file, when it is chosen, and its measured speed."""
    rows = []
    for form in registered():
        file = form.run.__module__.replace(".", "/") + ".py"
        plain = code(f"{form.layer.__name__}.{form.method}")
        rows.append((plain, f"{code(form.name)}, {code(file)}", code(condition(form)), form.measured))
    header = ("plain form", "fast form, file", "chosen if", "times as fast as the plain form, or memory; machine, day")
    return "\n".join(table(header, rows))


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Connect to source-read: replace the line {{ forms }} by the table."""
    if "{{ forms }}" in source[0]:
        source[0] = source[0].replace("{{ forms }}", forms())
        for form in registered():
            app.env.note_dependency(inspect.getfile(form.run))


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx call `fill`."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
