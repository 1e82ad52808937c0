"""Change the letters of text before it is cut into tokens: lower case, or as CCNet does (Wenzek et al. 2020).

Byte-order marks at the starts of lines are left out.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

from lmtool.config.data import Normalise
from lmtool.errors import UserError
from lmtool.system.terminal import note_once

# Byte-order marks of other encodings than UTF-8; that of UTF-16 LE begins that of UTF-32 LE.
OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
MARKS = re.compile(rb"^(?:\xef\xbb\xbf)+", re.MULTILINE)
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


def without_marks(lines: bytes, name: str, *, begins_file: bool = False) -> bytes:
    """Return lines without UTF-8's byte-order marks at their starts, with a note unless the only one begins the file.

    Raises UserError if the file begins with the mark of another encoding.
    """
    for mark, encoding in OTHER_MARKS.items() if begins_file else ():
        if lines.startswith(mark):
            raise UserError(f"{name} is {encoding}, not UTF-8: convert it, e.g. with iconv -f {encoding} -t UTF-8")
    lines = lines.removeprefix(codecs.BOM_UTF8) if begins_file else lines
    if codecs.BOM_UTF8 not in lines:
        return lines
    lines, count = MARKS.subn(b"", lines)
    if count:
        note_once(f"{name}: lines within it begin with byte-order marks, as where files were joined; they are left out")
    return lines


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
