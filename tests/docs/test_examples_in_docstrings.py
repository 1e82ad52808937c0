"""The examples in the docstrings of lmtool's exports run and print the output that they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import lmtool

MODULES = ("lmtool", "lmtool.neural", "lmtool.trees", "lmtool.kenlm", "lmtool.word_model", "lmtool.plots.word_trees")
WITHOUT = {"lmtool.kenlm." + name for name in ("ARPALoadComplain", "Config", "LanguageModel", "LoadMethod")}  # KenLM's


def public(module: str) -> list[str]:
    """Return the names that a module exports, or those of the functions and classes that it defines."""
    found = import_module(module)
    own = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == module]
    return getattr(found, "__all__", None) or [name for name in own if not name.startswith("_")]


def examples() -> list[doctest.DocTest]:
    """Return the examples of the functions and classes, and of the classes' methods."""
    finder, globs = doctest.DocTestFinder(exclude_empty=True), {"lmtool": lmtool}
    found = [
        finder.find(getattr(import_module(module), name), f"{module}.{name}", globs=globs)
        for module in MODULES
        for name in public(module)
    ]
    return [test for tests in found for test in tests if test.examples]


def test_functions_and_classes_have_examples() -> None:
    names = {f"{module}.{name}" for module in MODULES for name in public(module)}
    assert len(names) > 60 and names - {test.name for test in examples()} == WITHOUT


@pytest.mark.filterwarnings("ignore:.*perplexity says little:UserWarning")
@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_an_example(test: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)
