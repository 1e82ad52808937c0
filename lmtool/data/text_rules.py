"""Rules that rewrite text before it is cut into tokens: white space, lower case, Unicode's normal form, and spaces that
a segmenter inserts between words, in this order.

Characters of text, in bits per character, are code points of its NFC form; the letters that a reader counts are
grapheme clusters (Unicode Standard Annex 29), which `graphemes` returns.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import regex

from lmtool.config.data import DataConfig, Normalize, SegmenterConfig, Spaces

FORMS: dict[Normalize, Literal["NFC", "NFD", "NFKC"]]
FORMS = {Normalize.nfc: "NFC", Normalize.nfd: "NFD", Normalize.nfkc: "NFKC"}
SHOWN, BEFORE = 20, 10  # maximum characters of an example, in all and before the first unusual one
DOTLESS_I = "\u0131"
INVISIBLE = "\u00ad\u2060\ufeff"  # soft hyphen, word joiner, zero-width no-break space
ZERO_WIDTH_SPACE = "\u200b"
WORD = regex.compile(r"[^ \t-\r]+")
DOT_ABOVE = "\u0307"
SOFT_DOTTED = regex.compile(r"[IJ]\p{M}+")  # in text in NFD
TURKIC = ("tr", "az")
PUNCTUATION = {  # CCNet's replacements of characters, most of them typographic or full-width
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


@dataclass(frozen=True, slots=True)
class TextRules:
    """The rules that rewrite text before it is cut.

    lowercase: whether text becomes lower case, or the language whose rules apply: tr, az or lt. normalize: the normal
    form. spaces: unicode turns all white space of Unicode and the zero-width space into spaces, and leaves out the
    characters of INVISIBLE. segmenter: inserts spaces between the words of lines; None for no segmenter.
    """

    lowercase: bool | str = False
    normalize: Normalize = Normalize.none
    spaces: Spaces = Spaces.ascii
    segmenter: SegmenterConfig | None = field(default=None, hash=False)

    @classmethod
    def of(cls, data: DataConfig) -> TextRules:
        return cls(data.vocabulary.lowercase, data.normalize, data.spaces, data.segmenter)

    @property
    def word_rules(self) -> TextRules:
        """The rules for text whose words are already separated, e.g. lists of words: without the segmenter."""
        return self if self.segmenter is None else replace(self, segmenter=None)

    @property
    def changes(self) -> bool:
        return self != UNCHANGED

    @property
    def _changes_ascii(self) -> bool:
        """Whether ASCII text, which is in all normal forms, may change by more than bytes of lower case."""
        return bool(self.segmenter or self.normalize is Normalize.ccnet or self.lowercase in TURKIC)

    def __call__(self, text: str) -> str:
        """Return the lines of a text rewritten by the rules; their number does not change.

        Example:
            >>> TextRules(lowercase="tr", normalize=Normalize.nfc)("I\u0307STANBUL")
            'istanbul'
        """
        if text.isascii() and not self._changes_ascii:
            return text.lower() if self.lowercase else text
        if self.segmenter is not None:
            return self.segmenter(self.word_rules(text))
        if self.spaces is Spaces.unicode and not text.isascii():
            text = text.translate(space_table())
        if self.normalize is Normalize.ccnet:
            return "\n".join(map(ccnet, text.split("\n")))
        text = self._in_form(text)
        return self._in_form(lower(text, self.lowercase)) if self.lowercase else text

    def encoded(self, content: bytes) -> bytes:
        """Return lines in UTF-8 rewritten by the rules; the same object if nothing changes."""
        if not self.changes or (content.isascii() and not self._changes_ascii):
            return content.lower() if self.lowercase else content
        text = content.decode("utf-8", "surrogatepass")
        written = self(text)
        return content if written == text else written.encode("utf-8", "surrogatepass")

    def count_inserted(self, content: bytes, written: bytes) -> int:
        """Return the number of spaces that the segmenter inserted, which do not count as characters of the text."""
        if self.segmenter is None:
            return 0
        return len(written.split()) - len(self.word_rules.encoded(content).split())

    def count_changed(self, content: bytes) -> int:
        """Return the number of words of a text, separated by white space, that are not in the normal form."""
        form = FORMS.get(self.normalize)
        if content.isascii() or form is None:
            return 0
        lines = content.decode("utf-8", "surrogatepass").split("\n")
        others = (line for line in lines if not unicodedata.is_normalized(form, line))
        return sum(not unicodedata.is_normalized(form, word) for line in others for word in WORD.findall(line))

    def _in_form(self, text: str) -> str:
        # By lines: Unicode's quick check suffices for most, but would fail for a whole text with a single accent.
        form = FORMS.get(self.normalize)
        return text if form is None else "\n".join([unicodedata.normalize(form, line) for line in text.split("\n")])


UNCHANGED = TextRules()


@cache
def space_table() -> dict[int, str | None]:
    """Return the replacements of code points by `spaces=unicode`; None for removed ones."""
    white = (point for point in range(128, sys.maxunicode + 1) if chr(point).isspace())
    return {**dict.fromkeys(white, " "), ord(ZERO_WIDTH_SPACE): " ", **dict.fromkeys(map(ord, INVISIBLE))}


def lower(text: str, language: bool | str) -> str:
    """Return a text in lower case by Unicode's SpecialCasing.txt for tr, az, lt or True (any language), not False."""
    if not language:
        return text
    if language in TURKIC:
        text = text.replace(f"I{DOT_ABOVE}", "i").replace("\u0130", "i").replace("I", DOTLESS_I)
    elif language == "lt":  # i and j keep their dot under another mark
        decomposed = unicodedata.normalize("NFD", text)
        text = unicodedata.normalize("NFC", SOFT_DOTTED.sub(lambda found: _with_dot(found[0]), decomposed))
    return text.lower()


def _with_dot(letter: str) -> str:
    above = next((k for k, mark in enumerate(letter) if unicodedata.combining(mark) == 230), None)
    if above is None or letter[above] == DOT_ABOVE:
        return letter
    return f"{letter[0].lower()}{letter[1:above]}{DOT_ABOVE}{letter[above:]}"


def graphemes(text: str) -> list[str]:
    """Return the grapheme clusters of a text, the characters that a reader perceives.

    Example:
        >>> graphemes("e\u0301a")
        ['é', 'a']
    """
    return list(text) if text.isascii() and "\r" not in text else regex.findall(r"\X", text)


def count_characters(text: str) -> int:
    """Return the number of code points of a text in NFC."""
    return len(unicodedata.normalize("NFC", text))


class _Replacements(dict[int, str]):
    """CCNet's replacement of each code point of decomposed text in lower case, computed on first use."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        is_dropped = unicodedata.category(character) in ("Mn", "Cc")  # accents and control characters
        self[point] = found = "" if is_dropped else "0" if character.isdecimal() else character
        return found


_REPLACEMENTS = _Replacements({ord(each): plain for plain, those in PUNCTUATION.items() for each in those})


def ccnet(text: str) -> str:
    """Return a text in CCNet's normalization (Wenzek et al. 2020): white space at its ends is stripped, letters are
    lower case without accents, digits are 0, punctuation is ASCII, and control characters, including line ends and
    tabs, are dropped.

    Other combining characters stay decomposed (NFD), as in CCNet, whose SentencePiece composes them again.
    """
    return unicodedata.normalize("NFD", text.strip().lower()).translate(_REPLACEMENTS)


def notes_on_words(words: Iterable[tuple[str, int]], data: DataConfig, changed: int, total: int) -> list[str]:
    """Return notes on invisible characters, normal forms and dotless i in the words of a data set.

    words: of all splits, with their counts. changed: number of words, of `total`, that were not in the normal form.
    """
    rules, notes = data.vocabulary, []
    words = [(word, count) for word, count in words if count and not word.isascii()]
    if changed:
        notes.append(f"{changed:,} of {total:,} words were not in {FORMS[data.normalize]}: they are written in it")
    decomposed = sum(count for word, count in words if not unicodedata.is_normalized("NFC", word))
    if decomposed and data.normalize is Normalize.none:
        notes.append(f"{decomposed:,} words are not in NFC: data.normalize=nfc makes equal what looks so")
    if data.spaces is Spaces.ascii and not rules.unit.is_character and (spaces := unusual_spaces(words)):
        remedy = "data.spaces=unicode separates words at the spaces and leaves out the rest"
        notes.append(f"within words are {spaces}: {remedy}")
    dotless = sum(count for word, count in words if DOTLESS_I in word)
    if dotless and rules.lowercase is True:
        what = f"{dotless:,} words have a dotless i, as in Turkish"
        notes.append(f"{what}: data.vocabulary.lowercase=tr (or az) turns I into it, and \u0130 into i")
    return notes


def unusual_spaces(words: Iterable[tuple[str, int]]) -> str:
    """Return the white space and invisible characters within words, with numbers of words and an example; or ""."""
    counts: Counter[str] = Counter()
    example, unusual = "", set(map(chr, space_table()))
    for word, count in words:
        for character in unusual.intersection(word):
            counts[character] += count
            example = example or word
    if not counts:
        return ""
    named = (f"{unicodedata.name(character, 'control')} in {count:,}" for character, count in counts.most_common())
    first = max(0, min(k for k, character in enumerate(example) if character in unusual) - BEFORE)
    shown = (f"<U+{ord(c):04X}>" if c in unusual else c for c in example[first : first + SHOWN])
    return f"{', '.join(named)}, e.g. {''.join(shown)}"
