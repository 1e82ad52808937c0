"""Fonts for texts in any writing system: the default one, then installed ones for the letters that it lacks."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import regex

from lmtool.system.terminal import letters_of, note_once

DEFAULT = "DejaVu Sans"  # comes with matplotlib
# A letter is a base with its marks, which one font must draw; of their characters some are never drawn.
_DRAWN = regex.compile(r"[^\p{Default_Ignorable_Code_Point}\p{C}\p{Z}]")
# Kinds of letters, with Debian's packages of fonts for them.
_PACKAGES = {
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}]": "fonts-noto-cjk",
    r"\p{Extended_Pictographic}": "fonts-symbola",  # matplotlib cannot draw the letters of colored fonts
    "": "fonts-noto-core",
}
_lacking: set[str] = set()  # letters that no font had


def families(texts: Iterable[str]) -> list[str]:
    """Return the default font and installed ones, Noto's before others, that have the letters which it lacks.

    Letters that no font has are named in a note, once for each script.
    """
    from matplotlib import font_manager

    manager = font_manager.fontManager
    needed = {letter for letter in letters_of("\n".join(texts)) if _DRAWN.search(letter)}
    default = [entry for entry in manager.ttflist if entry.name == DEFAULT]
    missing = needed.difference(*(_covered(entry, needed) for entry in default if entry.style == "normal"))
    found = _cover(missing, manager.ttflist, needed)
    if missing:  # matplotlib keeps its list of fonts when others are installed
        known = {entry.fname for entry in manager.ttflist}
        for path in set(font_manager.findSystemFonts()) - known:
            with suppress(NotImplementedError, OSError, RuntimeError):  # not a font that it can draw
                manager.addfont(path)
        found += _cover(missing, manager.ttflist, needed)
    if missing:
        _note(missing)
    return [DEFAULT, *found]


def _covered(entry: Any, letters: set[str]) -> set[str]:
    """Return which letters a font has, as listed by matplotlib; none if it is not there any more."""
    from matplotlib.ft2font import FT2Font

    with suppress(OSError, RuntimeError):
        font = FT2Font(entry.fname, face_index=entry.index)
        return {each for each in letters if all(font.get_char_index(ord(part)) for part in _DRAWN.findall(each))}
    return set()


def _cover(missing: set[str], entries: Iterable[Any], needed: set[str]) -> list[str]:
    """Return the families that have letters, the most of them first, and take these from the letters missing."""
    have: dict[str, set[str]] = {}
    for entry in entries if missing else ():
        if "last resort" not in entry.name.lower():  # draws a box for each letter
            have.setdefault(entry.name, set()).update(_covered(entry, missing))
    written = "".join(needed)  # Han letters differ by country, which kana and hangul tell
    country = "JP" if regex.search(r"[\p{Hiragana}\p{Katakana}]", written) else "SC"
    country = "KR" if regex.search(r"\p{Hangul}", written) else country

    def rank(name: str) -> tuple[bool, int, bool, bool, str]:
        return not name.startswith("Noto Sans"), -len(have[name] & missing), "Mono" in name, country not in name, name

    found = []
    while useful := [name for name, letters in have.items() if letters & missing]:
        found.append(min(useful, key=rank))
        missing -= have[found[-1]]
    return found


def lacking() -> str:
    """Return a regular expression of matplotlib's warnings about the letters that notes have named."""
    return f"Glyph ({'|'.join(str(ord(part)) for part in sorted(set().union(*_lacking)))}) "


def _script(letter: str) -> str:
    """Return the first word of a letter's name, which is its script; nothing for symbols."""
    return _name(letter).split()[0] if unicodedata.category(letter[0])[0] in "LMN" else ""


def _name(letter: str) -> str:
    return unicodedata.name(letter[0], "UNKNOWN")


def _note(missing: set[str]) -> None:
    """Name a letter of each script of which letters are missing, once, and where to get fonts."""
    examples = {_script(letter): letter for letter in sorted(missing, reverse=True)}
    new = sorted(examples.keys() - {_script(letter) for letter in _lacking})
    _lacking.update(missing)
    if new:
        named = ", ".join(f"{examples[script]} ({_name(examples[script])})" for script in new[:5])
        packages = {next(_PACKAGES[kind] for kind in _PACKAGES if regex.match(kind, letter)) for letter in missing}
        note_once(
            f"pictures show boxes for letters that no installed font has, e.g. {named}: install "
            f"{' '.join(sorted(packages))} (Debian, Ubuntu), or a font of the script from https://fonts.google.com/noto"
        )
