"""The example of docs/guides/adding_a_verb.md is a verb once its two files are in lmtool/commands and conf."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

from tests.conftest import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "own_verb"
PAGE = ROOT / "docs" / "guides" / "adding_a_verb.md"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("lmtool", "conf"):
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("__pycache__"))
    copy(EXAMPLE / "count.py", folder / "lmtool" / "commands")
    copy(EXAMPLE / "count.yaml", folder / "conf")
    return folder


def said(checkout: Path, *words: str) -> str:
    line = [sys.executable, "-m", "lmtool", *words]
    done = subprocess.run(line, capture_output=True, text=True, cwd=checkout, check=False)
    return done.stdout + done.stderr


def python(checkout: Path, code: str, *words: str) -> str:
    line = [sys.executable, "-c", code, *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=checkout, check=True).stdout


def test_the_page_shows_what_its_lines_print(checkout: Path) -> None:
    shown = re.findall(r"^\$ lmtool (.*)\n((?:(?!\$|```).*\n)+)", PAGE.read_text(), flags=re.M)
    assert len(shown) == 2
    for words, printed in shown:
        assert said(checkout, *words.split(), "hydra.run.dir=out") == printed
    rows = json.loads((checkout / "out" / "result.json").read_text())["splits"]
    assert rows[0] == {"split": "train", "tokens": 137, "words": 19}


def test_help_and_completion_know_it(checkout: Path) -> None:
    assert "count       store -> tokens and words of each split" in said(checkout, "--help")
    page = said(checkout, "count", "--help")
    assert page.startswith("lmtool count [SPLITS...]: store -> ") and "needs to be counted [1 or more]" in page
    assert said(checkout, "completion", "query", "lmtool count min").strip() == "min_count="
    assert "name each split once" in said(checkout, "count", "train", "train", "hydra.run.dir=twice")


def test_it_is_a_function(checkout: Path) -> None:
    """As the page shows, with its settings' types, values and meanings."""
    (shown,) = re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)
    asked = (
        "import doctest, sys, lmtool; test = doctest.DocTestParser().get_doctest(sys.argv[1], {'lmtool': lmtool}, '', "
    )
    asked += "'', 0); runner = doctest.DocTestRunner(); runner.run(test); print(runner.summarize().failed)"
    assert python(checkout, asked, shown).strip() == "0"
    described = python(checkout, "import lmtool; help(lmtool.count)")
    assert (
        "count(splits: 'list[str] | None' = None, data: 'Option | Corpus' = 'pydoc', *, min_count: 'int' = 1,"
        in described
    )
    assert "progress: 'bool | None' = None) -> 'CountResult'\n    lmtool count: store -> " in described
    assert "min_count: occurrences in a split that a word needs to be counted [1 or more]." in described
    mistaken = (
        "import lmtool\ntry: lmtool.count(data='toy', min_cont=2)\nexcept lmtool.UserError as error: print(error)"
    )
    assert python(checkout, mistaken).startswith("no key 'min_cont'; did you mean min_count?")
