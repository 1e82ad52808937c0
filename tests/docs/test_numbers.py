"""The pages of measured figures: they agree with the README and with what ./scripts/reproduce wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

NUMBERS = ROOT / "docs" / "numbers"
RESULTS = sorted((ROOT / "scripts" / "results").glob("*.md"))
PAGES = sorted(NUMBERS.glob("*.md"))


def figures(text: str) -> list[str]:
    """The decimal numbers of a text, without a 0 before the point: "0.859 and 18.0" is .859 and 18.0."""
    return [number.removeprefix("0") for number in re.findall(r"(?<![\w.])\d*\.\d+(?![\w.])", text)]


def rounded(numbers: list[str], like: str) -> set[str]:
    """Numbers with as many digits as another one has behind its point."""
    digits = len(like.partition(".")[2])
    return {f"{float(number):.{digits}f}".removeprefix("0") for number in numbers}


def test_figures_of_the_readme_are_those_of_the_pages() -> None:
    known = figures("".join(page.read_text(encoding="utf-8") for page in PAGES))
    rows = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    measured = [number for row in rows for number in figures(row) if float(number) > 20]
    assert len(measured) > 5
    assert not [number for number in measured if number not in rounded(known, number)]


def test_figures_of_reproductions_are_those_that_were_written() -> None:
    name, compared = "", 0
    for row in (NUMBERS / "reproductions.md").read_text(encoding="utf-8").splitlines():
        if not row.startswith("| ") or row.startswith("| |"):
            continue
        what, _, here = row.strip("|").split("|")
        link = re.search(r"\]\(([\w-]+)\.md\)", what)
        name = link[1] if link else name if "Penn Treebank valid" not in what else "hw3"
        written = figures((ROOT / "scripts" / "results" / f"{name}.md").read_text(encoding="utf-8"))
        for number in figures(here):
            assert number in rounded(written, number), f"{name}: {number}"
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_each_reproduction_has_its_page(result: Path) -> None:
    page = (NUMBERS / result.name).read_text(encoding="utf-8")
    assert page == f"```{{include}} ../../scripts/results/{result.name}\n```\n"
    contents = (NUMBERS / "reproductions.md").read_text(encoding="utf-8")
    assert f"]({result.name})" in contents and f"\n{result.stem}\n" in contents


def test_commands_of_the_pages_are_there() -> None:
    known = set(re.findall(r"^    (\w+)  ", (ROOT / "scripts" / "measure").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"scripts/measure (\w+)", page.read_text(encoding="utf-8"))}
    assert len(named) > 20 and named <= known
