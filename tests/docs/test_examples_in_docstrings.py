"""The examples in the docstrings of what lmtool exports run and print what they show."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import lmtool


def examples() -> list[doctest.DocTest]:
    """Return the examples of the functions and classes, and of the classes' methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [finder.find(getattr(lmtool, name), f"lmtool.{name}", globs={"lmtool": lmtool}) for name in lmtool.__all__]
    return [test for tests in found for test in tests if test.examples]


def test_classes_have_examples() -> None:
    assert {"lmtool.TextModel", "lmtool.State", "lmtool.States", "lmtool.UserError"} <= {
        test.name for test in examples()
    }


@pytest.mark.filterwarnings("ignore:.*perplexity says little:UserWarning")
@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_an_example(test: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)
