"""The smoother that CONTRIBUTING.md adds step by step: its files, its formula and its test."""

from __future__ import annotations

import re
from textwrap import dedent

import tests.ngram.test_smoothers as smoothers
from lmtool.config.options import folder_in_use, settings_class
from tests.conftest import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "own_options" / "own_options"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_files_and_lines_are_those_of_the_example() -> None:
    for source, folder in re.findall(r"^ +cp (\S+) (\S+)$", TEXT, flags=re.M):
        assert (ROOT / source).is_file() and (ROOT / folder).is_dir()
        assert not (ROOT / folder / source.rpartition("/")[2]).exists()
    shown = blocks()[0].replace("  # of the shorter context", "")
    code = (EXAMPLE / "smoother" / "dirichlet.py").read_text(encoding="utf-8")
    assert [line for line in shown.splitlines() if line.strip() and line not in code.splitlines()] == []


def test_its_test_passes() -> None:
    with folder_in_use(EXAMPLE):
        module = __import__(settings_class("smoother", "dirichlet").__module__, fromlist=["Dirichlet"])
        names = {**vars(smoothers), "Dirichlet": module.Dirichlet}
        exec(blocks()[1], names)
        names["test_dirichlet_by_hand"]()


def blocks() -> list[str]:
    """Return the blocks of Python on the page."""
    return [dedent(block) for block in re.findall(r"^ *```py\n(.*?)^ *```$", TEXT, flags=re.M | re.S)]
