"""The reference of Python has every public name, and each says its shapes and what it raises."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import lmtool.kenlm
import lmtool.neural
import lmtool.results
import lmtool.trees
from lmtool.language_model import LanguageModel
from tests.conftest import ROOT

REFERENCE = ROOT / "docs" / "reference"
ARRAYS = re.compile(r"Array|Tensor|Int32s")


def classes_of(module: ModuleType) -> dict[str, type]:
    """Return the public classes that a module defines or exports."""
    return {
        name: value
        for name, value in ((name, getattr(module, name)) for name in dir(module))
        if inspect.isclass(value) and not name.startswith("_") and value.__module__.startswith(module.__name__)
    }


def public() -> Iterator[tuple[str, Any]]:
    """Every public name of the library, with its object."""
    for name in sorted({*lmtool.__all__} - {"distill", "mix"}):
        yield f"lmtool.{name}", getattr(lmtool, name)
    for module in (lmtool.neural, lmtool.trees):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)
    for module in (lmtool.kenlm, lmtool.results):
        for name, value in classes_of(module).items():
            yield f"{module.__name__}.{name}", value
    yield "lmtool.language_model.LanguageModel", LanguageModel


def own_members(kind: type) -> dict[str, Any]:
    """Return the members of a class that lmtool defines, inherited ones of TextModel included."""
    kinds = kind.__mro__ if kind is lmtool.TextModel else [kind]
    return {name: member for each in kinds for name, member in vars(each).items()}


def functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Every public function and method that is written here, and what the docstring of its class says."""
    for name, value in public():
        if inspect.isfunction(value):
            yield name, value, ""
        for inner, member in own_members(value).items() if inspect.isclass(value) else ():
            plain = (
                getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
            )
            if not inner.startswith("_") and inspect.isfunction(plain):
                yield f"{name}.{inner}", plain, inspect.getdoc(value) or ""


def definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """Return the syntax tree of a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


FUNCTIONS = list(functions())


def test_there_are_as_many_as_there_were() -> None:
    assert len(dict(public())) >= 70 and len(FUNCTIONS) >= 190


@pytest.mark.parametrize("name", [name for name, _ in public()])
def test_each_name_is_on_a_page(name: str) -> None:
    module, _, own = name.rpartition(".")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    whole = re.search(rf"automodule:: {re.escape(module)}\n(?!   :no-members:)", pages)
    assert whole or re.search(rf"auto(function|class|exception):: {re.escape(name)}$", pages, re.MULTILINE), own


def test_each_says_what_it_is() -> None:
    silent = [name for name, value in public() if not value.__doc__]
    assert not silent + [name for name, function, _ in FUNCTIONS if not inspect.getdoc(function)]


def test_each_names_what_it_raises_itself() -> None:
    missing = []
    for name, function, of_class in FUNCTIONS:
        said = f"{inspect.getdoc(function)} {of_class}"
        for node in ast.walk(definition(function)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                error = node.exc.func.id
                if error != "NotImplementedError" and error not in said:
                    missing.append(f"{name}: {error}")
    assert not missing


def test_each_that_takes_arguments_gives_the_shapes_of_its_arrays() -> None:
    missing = []
    for name, function, _ in FUNCTIONS:
        tree = definition(function)
        given = [a for a in (*tree.args.args, *tree.args.kwonlyargs) if a.arg not in ("self", "cls")]
        types = [ast.unparse(a.annotation) for a in given if a.annotation] + [ast.unparse(tree.returns or tree.args)]
        if given and any(ARRAYS.search(each) for each in types) and "`[" not in (inspect.getdoc(function) or ""):
            missing.append(name)
    assert not missing


def test_each_constructor_says_what_it_takes() -> None:
    missing = []
    for name, value in public():
        made = vars(value).get("__init__") if inspect.isclass(value) and not dataclasses.is_dataclass(value) else None
        if inspect.isfunction(made) and made.__code__.co_argcount > 1 and not made.__doc__:
            missing.append(name)
    assert not missing
