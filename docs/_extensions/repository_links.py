"""Links to Markdown files of the repository that stand outside docs, e.g. [results](../../scripts/results/hw3.md).

On GitHub they lead to the file. On the site they lead to the page that includes it, whichever that is; README.md is the
site's first page. A file that no page includes is left to MyST, which warns.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

INCLUDE = re.compile(r"^(?:`{3,}|:{3,})\{include\} (?P<path>\S+)", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#\s]+\.md)(?=[)#])")


def including_pages(docs: Path) -> dict[Path, Path]:
    """From each file that a page of the site includes to that page."""
    pages = {docs.parent / "README.md": docs / "index.md"}
    for page in docs.rglob("*.md"):
        for match in INCLUDE.finditer(page.read_text(encoding="utf-8")):
            pages[(page.parent / match["path"]).resolve()] = page
    return pages


def redirected(text: str, page: Path, docs: Path, pages: dict[Path, Path]) -> str:
    """Return the text of a page, with links to included files replaced by links to the pages that include them."""

    def address(match: re.Match[str]) -> str:
        file = (page.parent / match["path"]).resolve()
        if file.is_relative_to(docs) or file not in pages:
            return match["path"]
        return Path(os.path.relpath(pages[file], page.parent)).as_posix()

    return LINK.sub(address, text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Change the links when a page is read."""
    docs = Path(app.srcdir).resolve()
    pages = including_pages(docs)

    def change(app: Sphinx, name: str, source: list[str]) -> None:
        source[0] = redirected(source[0], Path(app.env.doc2path(name)).resolve(), docs, pages)

    app.connect("source-read", change)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
