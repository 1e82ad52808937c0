"""Leave out byte-order marks at the starts of lines, and recognize text in UTF-16 or UTF-32, with a mark or without."""

from __future__ import annotations

import codecs
import re
import unicodedata

from lmtool.errors import RecordError
from lmtool.system.terminal import note_once

# Byte-order marks of other encodings than UTF-8; the mark of UTF-32 LE begins with the mark of UTF-16 LE.
OTHER_MARKS = dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-32")
OTHER_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "UTF-16")
UTF8, *OTHERS = "UTF-8", "UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"
MARKS = re.compile(rb"^(?:\xef\xbb\xbf)+", re.MULTILINE)
KENLM_BINARY = b"mmap lm http://kheafield.com/code"  # first bytes of KenLM's binary files
HEAD = 1 << 12  # bytes by which an encoding is recognized


def require_utf8(head: bytes, name: str) -> None:
    """Raise RecordError if a file that begins with these bytes is in UTF-16 or UTF-32, or a KenLM binary. name: name of
    the file in the error.
    """
    if head.startswith(KENLM_BINARY):
        remedy = "use the ARPA file that it was made from (KenLM cannot write it back)"
        raise RecordError(f"{name} is a KenLM binary, as build_binary writes it: {remedy}")
    found = next((encoding for mark, encoding in OTHER_MARKS.items() if head.startswith(mark)), UTF8)
    if found == UTF8 and b"\0" in head:
        known = [(_spaces(head[:HEAD], encoding), encoding) for encoding in (UTF8, *OTHERS)]
        found = max((1, UTF8), *known)[1]  # a single space or line end may be chance
    if found != UTF8:
        raise RecordError(f"{name} is {found}, not UTF-8: convert it, e.g. with iconv -f {found} -t UTF-8")


def _spaces(head: bytes, encoding: str) -> int:
    """Return the number of spaces and line ends of a text, 0 if it is not text in this encoding.

    They are evidence in all scripts, because few characters have a byte 0, and the right encoding gives most of them.
    """
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)  # the head may end within a character
    except UnicodeDecodeError:
        return 0
    strange = sum(unicodedata.category(character) in ("Cc", "Cn") for character in text)
    strange -= sum(map(text.count, "\t\n\r"))
    is_text = strange <= 0.1 * len(text) and (encoding == UTF8 or "\0" not in text)
    return text.count(" ") + text.count("\n") if is_text else 0


def check_text(lines: bytes, where: str, first: int | None = None) -> None:
    """Raise RecordError, naming the place, if lines are not UTF-8 text. first: the number of the first line in the file
    `where`; None if `where` is the place of all lines.
    """
    what, at = "a NUL byte: this is not a text file", lines.find(b"\0")
    if at < 0:
        try:
            lines.decode("utf-8")
            return
        except UnicodeDecodeError as error:
            at = error.start
            what = f"byte 0x{lines[at]:02x} is not UTF-8: convert the file, e.g. with iconv"
    newlines = lines.count(b"\n", 0, at)
    raise RecordError(f"{where}{'' if first is None else f', line {first + newlines}'}: {what}")


def without_marks(lines: bytes, name: str, *, begins_file: bool = False) -> bytes:
    """Return lines without UTF-8's byte-order marks at their starts, with a note of marks within the file."""
    lines = lines.removeprefix(codecs.BOM_UTF8) if begins_file else lines
    if codecs.BOM_UTF8 not in lines:
        return lines
    lines, count = MARKS.subn(b"", lines)
    if count:
        note_once(f"{name}: lines within it begin with byte-order marks, as where files were joined; they are left out")
    return lines
