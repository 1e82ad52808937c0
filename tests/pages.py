"""README.md and the pages of docs/guides: their blocks and command lines.

Tests run the blocks of `sh` and `python`, in the order of the pages, as one session; blocks of `text` have
lines that the block before them prints. Blocks of `bash` and `py`, and lines indented by four spaces, are only shown,
because they need corpora, clusters or hours; their settings are checked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

README = ROOT / "README.md"
GUIDES = ROOT / "docs" / "guides"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: the number of its first line, its language, its text, and the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def toctree() -> list[str]:
    """Return the guides that the contents of the site list, in their order."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^guides/(\w+)$", text, flags=re.M)
    return [name for name in listed if name != "index"]


def pages() -> list[Path]:
    """Return the README, then the guides in the order of the site's contents."""
    return [README, *(GUIDES / f"{name}.md" for name in toctree())]


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """Yield the blocks of some languages, or all."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"(?:^<!-- ([^\n]*?) -->\n+)?^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S):
        if found[2] in languages or not languages:
            yield Block(page, text.count("\n", 0, found.start(3)) + 1, found[2], found[3], found[1] or "")


def indented(page: Path) -> str:
    """Return the lines that are indented by four spaces, without these spaces."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def command_lines(text: str) -> list[list[str]]:
    """Return the words after `lmtool` of each command line in a text; a backslash at its end continues a line."""
    lines = re.sub(r" *\\\n\s*", " ", text).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("lmtool ")]


def shell_code(page: Path) -> Iterator[str]:
    """Yield what a reader may copy into a shell: the lines of blocks, indented lines and code within text, or of a YAML
    file the examples in its comments.
    """
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        yield from re.findall(r"^# (?:Example: )?(lmtool .*)$", text, flags=re.M)
        return
    whole = "\n".join([*(block.text for block in blocks(page, "sh", "bash")), indented(page)])
    yield from re.sub(r" *\\\n\s*", " ", whole).splitlines()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)


def links(page: Path) -> list[str]:
    """Return the targets within the repository of a page's links and pictures."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [address for address in found if "://" not in address]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub and the site give the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
