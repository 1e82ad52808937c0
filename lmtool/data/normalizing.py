"""Change the letters of text before it is cut into tokens: lower case, or as CCNet does (Wenzek et al. 2020)."""

from __future__ import annotations

import unicodedata

from lmtool.config.data import Normalise

PUNCTUATION = {  # what CCNet writes for characters, most of them typographic or full-width
    '"': "\u201e\u201c\u201d\u00ab\u00bb\u300c\u300d\u300a\u300b",
    "'": "\u00b4\u2019",
    ",": "\uff0c\u3001",
    ".": "\u3002",
    ". ": "\uff0e",
    "...": "\u2026",
    ":": "\u2236\uff1a",
    ";": "\uff1b",
    "?": "\uff1f",
    "!": "\uff01",
    "(": "\uff08",
    ")": "\uff09",
    "[": "\u3010",
    "]": "\u3011",
    "<": "\u3008",
    ">": "\u3009",
    "-": "\u2013\u2501\u25ba",
    " - ": "\u2014",
    "~": "\uff5e",
    "%": "\uff05",
}


class _Replacements(dict[int, str]):
    """What CCNet writes for each code point of decomposed text in lower case, found when it is first asked for."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        is_dropped = unicodedata.category(character) in ("Mn", "Cc")  # accents and control characters
        self[point] = found = "" if is_dropped else "0" if character.isdecimal() else character
        return found


_REPLACEMENTS = _Replacements({ord(each): plain for plain, those in PUNCTUATION.items() for each in those})


def ccnet(text: str) -> str:
    """Return a text in CCNet's normalization: white space at its ends is cut off, letters are lower case without
    accents, digits are 0, punctuation is ASCII's, and control characters are dropped, line ends and tabs among them.

    What is not an accent stays decomposed (NFD), as in CCNet, whose SentencePiece composes it again.
    """
    return unicodedata.normalize("NFD", text.strip().lower()).translate(_REPLACEMENTS)


def normalized(text: str, *, lowercase: bool, normalise: Normalise | None) -> str:
    """Return the lines of a text in lower case, if `lowercase` is true, and by a rule, if any."""
    if normalise is not None:
        return "\n".join(map(ccnet, text.split("\n")))
    return text.lower() if lowercase else text
