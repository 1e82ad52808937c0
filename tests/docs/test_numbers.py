"""Each figure on a page is in scripts/results, where ./scripts/reproduce and ./scripts/measure wrote it.

A section that names the command of its figures (`./scripts/measure NAME`, `./scripts/reproduce NAME`, a link to its
page) may quote only figures of that command, and those of other programs and papers in elsewhere.txt; any other section
may quote all figures.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

NUMBERS = ROOT / "docs" / "numbers"
RESULTS = sorted((ROOT / "scripts" / "results").glob("*.md"))
PAGES = sorted(NUMBERS.glob("*.md"))


RESULTS_OF = ROOT / "scripts" / "results"
QUOTING = [
    ROOT / "README.md",
    *(
        page
        for folder in ("guides", "mathematics", "reference")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
    *(page for page in PAGES if "{include} ../../scripts/results/" + page.name not in page.read_text(encoding="utf-8")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "conf").rglob("*.yaml")),
]
FIGURE = re.compile(
    r"(?<![\w.,])(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+(?:e-?\d+)?|\d+(?= %| (?:s|ms|us|MB|MiB|GB|GiB)\b)"
    r"|(?<=\| )\d{3,}(?= \|))(?![\w.]*\d)(?: (?P<unit>million|M|GiB)\b)?"
)
UNITS = {"million": 1e6, "M": 1e6, "GiB": 1024.0}  # of tokens, of MiB
VERSION = re.compile(
    r"\b(?:Python|torch|before|defaults of|section|capabilit(?:y|ies)) \d+\.\d+(?: (?:to|and) \d+\.\d+)?"
)
NAMED = re.compile(r"\./scripts/(?:measure|reproduce) ([\w-]+)|\]\((?:[\w./]*/)?([\w-]+)\.md[)#]")


def figures(text: str) -> list[str]:
    """Return the decimal numbers of a text, each without a leading zero, so that texts with and without one agree."""
    return [number.removeprefix("0") for number in re.findall(r"(?<![\w.])\d*\.\d+(?![\w.])", text)]


def rounded(numbers: list[str], like: str) -> set[str]:
    """Round numbers to the number of decimals of another one."""
    digits = len(like.partition(".")[2])
    return {f"{float(number):.{digits}f}".removeprefix("0") for number in numbers}


@cache
def printed(name: str) -> tuple[float, ...]:
    """Return all numbers that a command wrote to scripts/results, except in the line with day and machine."""
    found = ""
    for path in (RESULTS_OF / f"{name}.md", RESULTS_OF / f"{name}.txt"):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found += "\n".join(line for line in text.splitlines() if not re.match(r"`?\./scripts/\w+ [\w-]+`?, ", line))
    numbers = re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\.\d+", re.sub(r"```.*?```", "", found, flags=re.S))
    return tuple(float(number.replace(",", "")) for number in numbers)


def names(*suffixes: str) -> set[str]:
    """Return the commands with results: .md files are of reproductions, .txt files of measurements."""
    return {path.stem for path in RESULTS_OF.iterdir() if path.suffix in suffixes}


def prose(text: str) -> str:
    """Return a page without blocks, code, link targets and versions."""
    for hidden in (
        r"(?s)<!--.*?-->",
        r"(?ms)^```.*?^```$",
        r"(?m)^(?:    |\t).*$",
        r"`[^`\n]*`",
        r"(?<=\])\([^)\n]*\)",
    ):
        text = re.sub(hidden, "", text)
    return VERSION.sub("", text.replace("**", ""))


def unknown(text: str, more: tuple[float, ...] = ()) -> list[str]:
    """Return the figures of a section that are in no result that it may quote. more: further figures it may quote."""
    commands, pages = map(set, zip(*NAMED.findall(text), ("", ""), strict=False))
    named = (commands & names(".md", ".txt")) | (pages & names(".md"))
    known = [*more, *(number for name in (named or names(".md", ".txt")) | {"elsewhere"} for number in printed(name))]
    missing = []
    for match in FIGURE.finditer(prose(text)):
        number = match["number"].replace(",", "")
        mantissa, _, exponent = number.partition("e")
        half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * (1 + 1e-6)
        scales = (1.0, UNITS.get(match["unit"] or "", 1.0))
        if not any(abs(value / scale - float(number)) <= half for value in known for scale in scales):
            missing.append(match[0])
    return missing


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.stem)
def test_figures_are_those_that_were_printed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        text = "\n".join(line.partition("# ")[2] for line in text.splitlines()[1:])
    # A tutorial may say in words what its blocks show, which tests/docs/test_tutorials.py compares with what comes out.
    blocks = "".join(re.findall(r"^```text$.*?^```$", text, re.S | re.M)) if page.parent.name == "tutorials" else ""
    shown = tuple(float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", blocks))
    sections = re.split(r"^(?=#+ )", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), flags=re.M)
    assert not [found for section in sections if (found := unknown(section, shown))]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`./scripts/measure kenlm`: 157.77, 149.896 and 148.01", []),
        ("`./scripts/measure kenlm`: 157.78", ["157.78"]),
        ("`./scripts/measure layers`: 204,000 examples a second", ["204,000"]),  # as a guide had it before 0.6.0
        ("`./scripts/measure kenlm`: 101.38", ["101.38"]),  # which another command printed
        ("`101.39` before 0.5 and Python 3.11 to 3.13", []),
        ("`./scripts/reproduce morin-bengio2005`: the tree cost 17 % more", ["17"]),
        ("`./scripts/measure ngram`: 1,172 MiB, 10.9 million, 5.7 s and 26.5 s", ["10.9 million", "26.5"]),
        ("`./scripts/measure kenlm`: | 654 |", ["654"]),
    ],
)
def test_the_test_sees_what_was_not_printed(text: str, missing: list[str]) -> None:
    assert unknown(text) == missing


def test_figures_of_options_are_those_that_were_printed() -> None:
    groups = tomllib.loads((RESULTS_OF / "options.toml").read_text(encoding="utf-8"))
    for group, of in groups.items():
        rows = [f"{row['perplexity']} {row.get('note', '')}" for rows in of["rows"].values() for row in rows]
        assert unknown(f"{of['by']} {' '.join(rows)}") == [], group


def test_results_say_when_and_where_they_were_printed() -> None:
    for path in RESULTS_OF.glob("*.txt"):
        if path.stem != "elsewhere":
            about = path.read_text(encoding="utf-8").partition("\n")[0]
            assert re.match(rf"\./scripts/measure {path.stem}, 20\d\d-\d\d-\d\d[,;] .*\bcores? of ", about), path.name


def test_figures_of_reproductions_are_those_that_were_written() -> None:
    name, compared = "", 0
    for row in (NUMBERS / "reproductions.md").read_text(encoding="utf-8").splitlines():
        if not row.startswith("| ") or row.startswith("| experiment"):
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
    known = runpy.run_path(str(ROOT / "scripts" / "measure"))["measures"]().keys()
    named = {name for page in PAGES for name in re.findall(r"scripts/measure (\w+)", page.read_text(encoding="utf-8"))}
    assert len(named) > 20 and named - {"NAME"} <= known
