"""Fonts for texts in any writing system: the default font, then installed fonts for characters that it lacks."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import regex

from lmtool.system.terminal import letters_of, note_once

DEFAULT = "DejaVu Sans"  # comes with matplotlib
# A base and its marks must be drawn by one font; some of their code points are never drawn.
_DRAWN = regex.compile(r"[^\p{Default_Ignorable_Code_Point}\p{C}\p{Z}]")


def families(texts: Iterable[str]) -> list[str]:
    """Return the default font and installed fonts, Noto's first, that have the characters that it lacks.

    A note names the scripts of characters that no font has.
    """
    from matplotlib import font_manager

    manager, found = font_manager.fontManager, [DEFAULT]
    missing = {letter for letter in letters_of("\n".join(texts)) if _DRAWN.search(letter)}
    # Han characters differ by country; kana and hangul indicate which.
    country = "JP" if any(regex.search(r"[\p{Hiragana}\p{Katakana}]", letter) for letter in missing) else "SC"
    country = "KR" if any(regex.search(r"\p{Hangul}", letter) for letter in missing) else country
    _cover(missing, [entry for entry in manager.ttflist if entry.name == DEFAULT], country)
    found += _cover(missing, manager.ttflist, country)
    if missing:  # matplotlib's list of fonts is not updated when fonts are installed
        for path in set(font_manager.findSystemFonts()) - {entry.fname for entry in manager.ttflist}:
            with suppress(NotImplementedError, OSError, RuntimeError):  # a font that matplotlib cannot draw
                manager.addfont(path)
        found += _cover(missing, manager.ttflist, country)
    if missing:
        drawn = [_DRAWN.findall(letter)[0] for letter in missing]
        common = regex.compile(r"\p{Common}")
        scripts = {"symbols" if common.match(a) else unicodedata.name(a, "UNKNOWN").split()[0] for a in drawn}
        note_once(
            f"pictures show boxes for letters that no installed font has ({', '.join(sorted(scripts)[:5])}): install a "
            "font of the script, e.g. of https://fonts.google.com/noto; Debian and Ubuntu have the packages "
            "fonts-noto-core, fonts-noto-cjk (Chinese, Japanese, Korean) and fonts-symbola (emoji)"
        )
    return found


def _cover(missing: set[str], entries: Iterable[Any], country: str) -> list[str]:
    """Return the families that have some of the missing characters, the family with most first, and remove these from
    `missing`.
    """
    from matplotlib.ft2font import FT2Font

    have: dict[str, set[str]] = {}
    for entry in entries if missing else ():
        if "last resort" not in entry.name.lower():  # draws a box for each character
            with suppress(OSError, RuntimeError):  # a font that no longer exists
                font = FT2Font(entry.fname)  # all faces of a collection have the same characters
                drawn = {each for each in missing if all(map(font.get_char_index, map(ord, _DRAWN.findall(each))))}
                have.setdefault(entry.name, set()).update(drawn)

    def rank(name: str) -> tuple[bool, int, bool, bool, str]:
        return not name.startswith("Noto Sans"), -len(have[name] & missing), "Mono" in name, country not in name, name

    found = []
    while useful := [name for name, letters in have.items() if letters & missing]:
        found.append(min(useful, key=rank))
        missing -= have[found[-1]]
    return found
