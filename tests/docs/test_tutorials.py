"""The tutorials run unchanged: commands, Python and files in their order; their shown output is the actual output.

A block of the language `sh` has lines `lmtool ...`; `python` blocks of a page share their names. A comment before a
block can change its role: `<!-- file: PATH -->` writes it to a file, and `<!-- output -->` requires its lines, in this
order, in the output of the previous block; `...` matches anything, and `<!-- output within 25 % -->` allows numbers to
differ. `<!-- output within 5 % on Python 3.11, 50 % elsewhere -->` is for text that differs between versions of Python,
the docstrings of its library; without the second share, other versions are not compared. `bash` blocks cannot run here:
their lmtool lines are composed by Hydra and not run.
"""

from __future__ import annotations

import math
import platform
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from lmtool.plots import can_plot
from tests.conftest import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted(path.stem for path in TUTORIALS.glob("*.md") if path.stem != "index")
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.S | re.M)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\binf\b")


class Block(NamedTuple):
    mark: str
    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    return [Block(match["mark"] or "", match["language"], match["text"]) for match in BLOCK.finditer(text)]


def commands_of(text: str) -> list[list[str]]:
    """Return the words of each command of a block, without comments; a backslash continues a line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def line_matches(wanted: str, line: str, share: float) -> bool:
    """Return whether a line is the wanted one, except for `...`, the width of spaces and a share of each number."""
    pieces = [" ".join(piece.split()) for piece in wanted.split("...")]
    pattern = ".*".join(re.escape(NUMBER.sub("\0", piece)) for piece in pieces)
    pattern = pattern.replace(re.escape("\0"), f"({NUMBER.pattern})").replace(r"\ ", r"\s+")
    found = re.fullmatch(rf"\s*{pattern}\s*", line)
    if found is None:
        return False
    numbers = [(text.replace(",", "")) for piece in pieces for text in NUMBER.findall(piece)]
    real = [text.replace(",", "") for text in found.groups()]
    if not share:
        return numbers == real
    return all(
        a == b or abs(float(a) - float(b)) < share * float(a) < math.inf for a, b in zip(numbers, real, strict=True)
    )


def share_of(mark: str, python: str) -> float | None:
    """Return the share by which numbers may differ on a version of Python; None if nothing is compared."""
    found = re.fullmatch(r"output(?: within (\d+) %(?: on Python (\d+\.\d+)(?:, (\d+) % elsewhere)?)?)?", mark)
    assert found is not None, mark
    percent = found[1] if found[2] is None or python.startswith(f"{found[2]}.") else found[3]
    return int(percent or 0) / 100 if percent or not found[2] else None


def require_output(wanted: str, output: str, share: float) -> None:
    """Require the lines of `wanted` in the output, in their order."""
    lines = iter(output.splitlines())
    for line in wanted.splitlines():
        if line.strip() not in ("", "..."):
            assert any(line_matches(line, real, share) for real in lines), f"not printed: {line!r}\n{output}"


def one_thread(words: list[str]) -> list[str]:
    """Return the setting of one thread: small networks gain nothing from a second core, which other tests use."""
    return [] if any(word.startswith("resume=") for word in words) else ["threads=1"]


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_runs(page: str, lmtool: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    output: str | None = ""  # None where nothing of a block can run
    ran = 0
    for mark, language, text in blocks_of(page):
        if mark.startswith("file: "):
            path = Path(mark.removeprefix("file: "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif mark.startswith("output"):
            percent = share_of(mark, platform.python_version())
            if output is not None and percent is not None:
                require_output(text, output, percent)
        elif language == "sh":
            lines = commands_of(text)
            assert all(words[0] == "lmtool" for words in lines), lines
            runs = [words for words in lines if words[1] != "report" or can_plot()]
            output = "".join(lmtool(*words[1:], *one_thread(words)) for words in runs) if runs else None
            ran += len(lines)
        elif language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
            output = capfd.readouterr().out
            ran += 1
    assert ran >= 5


def commands_not_run() -> list[list[str]]:
    """Return the commands of the `bash` blocks of all pages."""
    lines = [
        words
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "bash"
        for words in commands_of(block.text)
    ]
    return [words for words in lines if words[0] == "lmtool"]


@pytest.mark.parametrize("page", PAGES)
def test_a_file_has_its_name_above_it(page: str) -> None:
    """Pages do not show the comments that name files for these tests."""
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    for path in re.findall(r"^<!-- file: (\S+) -->$", text, flags=re.M):
        assert f"`{path}`:\n\n<!-- file: {path} -->" in text, path


def test_no_block_is_a_console() -> None:
    # Without prompts a `console` block is all output to Pygments: gray, and left out by the button that copies.
    assert not [page for page in PAGES if any(block.language == "console" for block in blocks_of(page))]


def test_commands_that_cannot_run_here_have_no_wrong_key(lmtool: Callable[..., str]) -> None:
    lines = commands_not_run()
    assert len(lines) > 10
    for words in lines:
        # Of a sweep the first job, without launcher and sweeper, which are extras.
        first = [re.sub(r"^([\w.]+=[^\[,]+),.*", r"\1", word) for word in words[1:] if word != "-m"]
        assert lmtool(
            *(word for word in first if not re.search(r"hydra[/.](launcher|sweeper)|interval", word)), "--cfg", "job"
        )


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_says_how_long_it_takes_and_what_is_next(page: str) -> None:
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    assert re.search(r"^\*\*Time:?\*\*:? .*minutes", text, flags=re.M)
    last = text.rpartition("\n## ")[2]
    assert last.startswith("What next\n") and last.count("](") >= 2
    assert page in (TUTORIALS / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("wanted", "line", "share", "right"),
    [
        ("perplexity  31.41", "perplexity   31.41", 0, True),
        ("perplexity  31.41", "perplexity   31.42", 0, False),
        ("perplexity  31.41", "perplexity   33.0", 0.1, True),
        ("perplexity  31.41", "perplexity   36.0", 0.1, False),
        ("valid perplexity 3.5, ... n-grams, ...", "valid perplexity 3.5, 1,003 n-grams, 1.1 s; run=a", 0, True),
        ("valid perplexity 3.5, ... n-grams, ...", "valid perplexity 3.6, 1,003 n-grams, 1.1 s; run=a", 0, False),
        ("1,000 texts", "1,001 texts", 0, False),
        ("a inf", "a inf", 0.1, True),
        ("a inf", "a 3", 0.1, False),
    ],
)
def test_the_test_sees_what_differs(wanted: str, line: str, share: float, right: bool) -> None:
    assert line_matches(wanted, line, share) is right


def test_a_mark_says_how_much_numbers_may_differ() -> None:
    assert share_of("output", "3.12.1") == 0 and share_of("output within 3 %", "3.12.1") == 0.03
    both = "output within 5 % on Python 3.11, 50 % elsewhere"
    assert share_of(both, "3.11.7") == 0.05 and share_of(both, "3.1.1") == share_of(both, "3.12.1") == 0.5
    assert share_of("output within 5 % on Python 3.11", "3.12.1") is None
