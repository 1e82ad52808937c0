#!/usr/bin/env python3
"""Check the site that ./scripts/docs built: python scripts/check_site.py FOLDER.

Every link within the site leads to a page, file or heading that exists; pages load nothing from elsewhere; and no page,
with styles and scripts but without pictures, exceeds 1 MB. Prints each violation in a line; the exit code is then 1.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

LIMIT = 1_000_000  # bytes of a page
ADDRESS = re.compile(r"""<(a|script|link|img|source|iframe)\b([^>]*?)\s(?:href|src)=["']([^"']+)["']([^>]*)""")
ANCHOR = re.compile(r"""\s(?:id|name)=["']([^"']+)""")
RELATION = re.compile(r"""\srel=["'](?!stylesheet|icon|shortcut)""")  # of a link that is not loaded


def faults(folder: Path) -> list[str]:
    """Return what is wrong with a site, one line each."""
    folder = folder.resolve()
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html"))}
    anchors = {path: set(map(unescape, ANCHOR.findall(text))) for path, text in pages.items()}
    found = [] if pages else [f"{folder}: no page"]
    for page, text in pages.items():
        name, size = page.relative_to(folder), page.stat().st_size
        for tag, before, address, after in sorted(set(ADDRESS.findall(text))):
            address, is_loaded = unescape(address), tag != "a" and not RELATION.search(before + after)
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if is_loaded and parts.scheme != "data":
                    found.append(f"{name}: loads {address}, which is not on this site")
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file, anchor = file / "index.html" if file.is_dir() else file, unquote(parts.fragment)
            if not file.is_file():
                found.append(f"{name}: {address} leads nowhere")
            elif anchor and file in pages and anchor not in anchors[file]:
                found.append(f"{name}: {address} names a place that is not on that page")
            elif is_loaded and file.suffix in (".css", ".js"):
                size += file.stat().st_size
        if size > LIMIT:
            found.append(f"{name}: {size:,} bytes without pictures, of {LIMIT:,}")
    return found


if __name__ == "__main__":
    lines = faults(Path(sys.argv[1]))
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
    sys.exit(1 if lines else 0)
