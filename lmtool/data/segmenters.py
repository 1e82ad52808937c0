"""Words of scripts that do not separate them by spaces: the options of segmenter=, and the advice to use one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import regex

from lmtool.config.data import SegmenterConfig
from lmtool.config.rules import MISSING
from lmtool.data.text_rules import graphemes
from lmtool.errors import UserError
from lmtool.system.terminal import note_once

# Unicode calls Thai, Lao, Khmer, Burmese and similar scripts complex (SA). Tibetan marks its syllables, and ICU has
# no dictionary of it.
SCRIPTS = r"\p{Line_Break=SA}\p{Line_Break=CJ}\p{Han}\p{Hiragana}\p{Katakana}"
ICU_SCRIPTS, UNSPACED = regex.compile(rf"[{SCRIPTS}]"), regex.compile(rf"[{SCRIPTS}\p{{Tibetan}}]")
SHARE = 0.3  # minimum share of the letters
LENGTH = 4.5  # minimum mean length in characters: words have 1.6 (Chinese) to 3.8 (Lao), phrases 5.6 or more
UNSPACED_REMEDY = (
    "white space separates few words of this text: choose pieces (data.vocabulary.unit=bpe), letters "
    "(data.vocabulary.unit=grapheme) or a segmenter (data.segmenter=icu for Thai, Lao, Khmer, Burmese, Chinese and "
    "Japanese, or one of your own)"
)
INSTALL = (
    'data.segmenter=icu: PyICU is not installed: pip install "lmtool[icu]", which compiles it by the headers of ICU '
    "(apt-get install libicu-dev pkg-config g++), or conda install -c conda-forge pyicu"
)


def lacks_spaces(words: Iterable[str]) -> bool:
    """Return whether words that white space separates seem to be phrases of scripts without spaces."""
    each = list(words)
    phrases = [word for word in each if not word.isascii() and UNSPACED.search(word)]
    if not phrases:
        return False
    letters = regex.findall(r"\p{L}", " ".join(each))
    is_long = sum(len(graphemes(word)) for word in phrases) >= LENGTH * len(phrases)
    return is_long and len(UNSPACED.findall("".join(letters))) > SHARE * len(letters)


@dataclass(slots=True)
class IcuSegmenter(SegmenterConfig):
    """The word boundaries of ICU (Unicode Standard Annex 29), by its dictionaries of Thai, Lao, Khmer, Burmese, and
    Chinese and Japanese.

    A string between white space is cut at all word boundaries, including those of punctuation, if it has a letter of
    these scripts; otherwise it stays unchanged.
    """

    kind: str = "icu"
    version: str | None = MISSING

    def __post_init__(self) -> None:
        SegmenterConfig.__post_init__(self)
        with suppress(ImportError):  # `cut` raises it: without raw text nothing needs cutting
            import icu

            self.version = self.version or str(icu.ICU_VERSION)

    def cut(self, line: str) -> str:
        return str(regex.sub(r"\S+", self._cut_match, line)) if ICU_SCRIPTS.search(line) else line

    def _cut_match(self, found: regex.Match[str]) -> str:
        word: str = found[0]
        if not ICU_SCRIPTS.search(word):
            return word
        try:
            import icu
        except ImportError:
            raise UserError(INSTALL) from None
        if self.version != icu.ICU_VERSION:
            versions = f"ICU {self.version} cut the text of this run, and here is ICU {icu.ICU_VERSION}"
            note_once(f"data.segmenter=icu: {versions}, whose words may differ")
        boundaries = icu.BreakIterator.createWordInstance(icu.Locale.getRoot())  # the same in all locales
        boundaries.setText(word)
        ends = list(boundaries)
        if max(word) > "\uffff":  # two units of UTF-16, in which ICU counts
            at = [k for k, letter in enumerate(word, 1) for _ in range(1 + (letter > "\uffff"))]
            ends = [at[end - 1] for end in ends]
        return " ".join([word[start:end] for start, end in pairwise([0, *ends])])
