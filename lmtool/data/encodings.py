"""Leave out byte-order marks at the starts of lines, and recognize text in other encodings than UTF-8, for errors."""

from __future__ import annotations

import codecs
import re

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
