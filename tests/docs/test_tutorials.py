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
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.plots import can_plot
from tests.conftest import ROOT
from tests.pages import blocks, command_lines

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "index")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\binf\b")


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, lmtool: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    output: str | None = ""  # None where nothing of a block can run
    ran = 0
    for block in blocks(page):
        if block.mark.startswith("file: "):
            path = Path(block.mark.removeprefix("file: "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.mark.startswith("output"):
            percent = share_of(block.mark, platform.python_version())
            if output is not None and percent is not None:
                require_output(block.text, output, percent)
        elif block.language == "sh":
            lines = command_lines(block.text)
            assert len(lines) == len(re.findall(r"^\w", block.text, re.M)), block.place
            runs = [words for words in lines if words[0] != "report" or can_plot()]
            output = "".join(lmtool(*words, *one_thread(words)) for words in runs) if runs else None
            ran += len(lines)
        elif block.language == "python":
            exec(compile(block.text, block.place, "exec"), names)
            output = capfd.readouterr().out
            ran += 1
    assert ran >= 5


def test_commands_that_cannot_run_here_have_no_wrong_key(lmtool: Callable[..., str]) -> None:
    lines = [words for page in PAGES for block in blocks(page, "bash") for words in command_lines(block.text)]
    assert len(lines) > 10
    for words in lines:
        # Of a sweep the first job, without launcher and sweeper, which are extras.
        first = [re.sub(r"^([\w.]+=[^\[,]+),.*", r"\1", word) for word in words if word != "-m"]
        assert lmtool(
            *(word for word in first if not re.search(r"hydra[/.](launcher|sweeper)|interval", word)), "--cfg", "job"
        )


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
