#!/usr/bin/env python3
"""Check the site that ./scripts/docs built: python scripts/check_site.py FOLDER.

Every link within the site leads to a page, file or heading that exists; pages load nothing from elsewhere; and no page,
with styles and scripts but without pictures, exceeds 1 MB. Prints each violation in a line; the exit code is then 1.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LIMIT = 1_000_000  # bytes of a page
LOADED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}  # tags that fetch something
PICTURES = (".png", ".svg", ".jpg", ".gif", ".ico", ".webp")


class Page(HTMLParser):
    """The addresses on a page. anchors: ids. links: targets of <a>. loads: pictures, styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids and addresses of a tag."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values and tag != "meta"}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        relation = values.get("rel", "stylesheet")
        if tag in LOADED and LOADED[tag] in values and relation in ("stylesheet", "icon", "shortcut icon"):
            self.loads.add(values[LOADED[tag]])


def target(page: Path, address: str) -> tuple[Path, str] | None:
    """Return the file and anchor that an address on a page names; None if it is outside the site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return file / "index.html" if file.is_dir() else file, unquote(parts.fragment)


def faults(folder: Path) -> list[str]:
    """Return what is wrong with a site, one line each."""
    folder = folder.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = [] if pages else [f"{folder}: no page"]
    for path, page in pages.items():
        name = path.relative_to(folder)
        for address in sorted(page.links):
            named = target(path, address)
            if named is None:
                continue
            file, anchor = named
            if not file.is_file():
                found.append(f"{name}: {address} leads nowhere")
            elif anchor and file in pages and anchor not in pages[file].anchors:
                found.append(f"{name}: {address} names a place that is not on that page")
        size = path.stat().st_size
        for address in sorted(page.loads):
            named = target(path, address)
            if named is None:
                if not address.startswith("data:"):
                    found.append(f"{name}: loads {address}, which is not on this site")
            elif not named[0].is_file():
                found.append(f"{name}: loads {address}, which is missing")
            elif named[0].suffix not in PICTURES:
                size += named[0].stat().st_size
        if size > LIMIT:
            found.append(f"{name}: {size:,} bytes without pictures, of {LIMIT:,}")
    return found


def main() -> int:
    """Check the folder on the command line."""
    lines = faults(Path(sys.argv[1]))
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
