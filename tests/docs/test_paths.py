"""The pages name only files, folders and Python names that exist."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = [page for page in PAGES if not {"_build", "generated", "auto_gallery"} & set(page.parts)]
PATH = re.compile(r"(?<![\w./-])(?:lmtool|conf|scripts|tests|docs)/[\w./-]*\w/?")
NAME = re.compile(r"`(lmtool(?:\.\w+)+)[`(]")  # without the group of entry points
MADE = ("docs/_build", "docs/auto_gallery", "docs/mathematics/generated")


def paths(text: str) -> set[str]:
    """Return the paths below the repository that a page names, without placeholders such as VERB.py."""
    return {path for path in PATH.findall(text) if not re.search(r"\b[A-Z]{3,}\b", path) and not path.startswith(MADE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_paths_and_names_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert sorted(path for path in paths(text) if not (ROOT / path).exists()) == []
    assert sorted(name for name in set(NAME.findall(text)) - {"lmtool.options"} if not exists(name)) == []


def exists(name: str) -> bool:
    """Return whether a dotted name is a module of lmtool or an attribute of one."""
    parts = name.split(".")
    length = next(k for k in range(len(parts), 0, -1) if _is_module(".".join(parts[:k])))
    value: object = import_module(".".join(parts[:length]))
    for part in parts[length:]:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_architecture_page_has_each_folder() -> None:
    text = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`lmtool/\w+/?`(?:, )?)+) \|", text, flags=re.M)
    named = {name for row in rows for name in re.findall(r"`lmtool/(\w+)/`", row)}
    folders = {path.name for path in (ROOT / "lmtool").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert named == folders


def test_the_test_sees_what_does_not_exist() -> None:
    assert paths("`lmtool/commands/VERB.py`, see tests/test_imports.py and `lmtool/nowhere.py`.") == {
        "tests/test_imports.py",
        "lmtool/nowhere.py",
    }
    assert exists("lmtool.train") and exists("lmtool.neural.NCELoss.loss") and not exists("lmtool.nothing")
