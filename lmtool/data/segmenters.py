"""Find words in scripts that do not separate them by spaces: the options of segmenter=, and the advice to use one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import regex

from lmtool.config.data import SegmenterConfig
from lmtool.config.rules import MISSING, require
from lmtool.errors import UserError
from lmtool.system.terminal import note_once

# Letters whose words ICU finds by dictionaries: of complex context, as Unicode calls Thai, Lao, Khmer, Burmese and
# their like, and of Chinese and Japanese. Tibetan has marks between syllables, and no dictionary.
SCRIPTS = r"\p{Line_Break=SA}\p{Line_Break=CJ}\p{Han}\p{Hiragana}\p{Katakana}"
OF_ICU, UNSPACED = regex.compile(rf"[{SCRIPTS}]"), regex.compile(rf"[{SCRIPTS}\p{{Tibetan}}]")
SHARE = 0.3  # minimum share of the letters that are of such a script
LENGTH = (
    4.5  # minimum mean length in grapheme clusters: of words it is 1.6 (Chinese) to 3.8 (Lao), of phrases 5.6 or more
)
REMEDY = (
    "white space separates few words of this text: choose pieces (data.vocabulary.unit=bpe), letters "
    "(data.vocabulary.unit=char) or a segmenter (data.segmenter=icu for Thai, Lao, Khmer, Burmese, Chinese and "
    "Japanese, or one of your own)"
)
INSTALL = (
    'data.segmenter=icu: PyICU is not installed: pip install "lmtool[icu]", which compiles it by the headers of ICU '
    "(apt-get install libicu-dev pkg-config g++), or conda install -c conda-forge pyicu"
)


def lacks_spaces(words: Iterable[str]) -> bool:
    """Return whether words, as white space separates them, are rather phrases of scripts without spaces."""
    each = list(words)
    phrases = [word for word in each if UNSPACED.search(word)]
    letters = regex.findall(r"\p{L}", " ".join(each))
    clusters = sum(len(regex.findall(r"\X", word)) for word in phrases)
    return len(UNSPACED.findall("".join(letters))) > SHARE * len(letters) and clusters >= LENGTH * len(phrases)


@dataclass(frozen=True, slots=True)
class Segmenter:
    """An option of segmenter= at work. settings: as JSON; cut: what it built from them, for one line."""

    settings: str
    cut: Callable[[str], str] = field(compare=False, repr=False)

    @classmethod
    def of(cls, given: Any) -> Segmenter | None:
        """Return the segmenter that the setting data.segmenter names, None for none. Raises UserError as it does."""
        from lmtool.config.settings import option_named

        if given is None:
            return None
        option = option_named("segmenter", given, "data.segmenter")
        return cls(json.dumps(asdict(option), sort_keys=True), option.build())

    def __call__(self, text: str) -> str:
        """Return lines with spaces between their words. Raises UserError if anything else changed."""
        return "\n".join(map(self._line, text.split("\n")))

    def _line(self, line: str) -> str:
        cut = self.cut(line)
        if cut is not line and "".join(cut.split()) != "".join(line.split()):
            kind = json.loads(self.settings)["kind"]
            raise UserError(
                f"data.segmenter={kind}: {line!r:.60} became {cut!r:.60}: it may insert spaces, nothing else; correct it"
            )
        return cut


@dataclass(slots=True)
class IcuSegmenter(SegmenterConfig):
    """The word boundaries of ICU (Unicode Standard Annex 29), by its dictionaries of Thai, Lao, Khmer, Burmese, and
    Chinese and Japanese.

    What white space separates is cut at all of them, punctuation too, if it has a letter of these scripts, and stays as
    it is if not. version: of ICU, as its dictionaries differ; None for the installed one.
    """

    kind: str = "icu"
    locale: str | None = MISSING
    version: str | None = MISSING

    def __post_init__(self) -> None:
        SegmenterConfig.__post_init__(self)
        with suppress(ImportError):  # which build reports: a run with a store needs no segmenter
            import icu

            self.version = self.version or icu.ICU_VERSION
            known = self.locale is None or icu.Locale(self.locale).getLanguage() in icu.Locale.getISOLanguages()
            require(known, "data.segmenter.locale", self.locale, "null or a language, e.g. th")

    def build(self) -> Callable[[str], str]:
        """Return the function. Raises UserError if PyICU is not installed."""
        try:
            import icu
        except ImportError:
            raise UserError(INSTALL) from None
        if self.version != icu.ICU_VERSION:
            versions = f"ICU {self.version} cut the text of this run, and here is ICU {icu.ICU_VERSION}"
            note_once(f"data.segmenter=icu: {versions}, whose words may differ")
        return self._cut

    def _cut(self, line: str) -> str:
        return regex.sub(r"\S+", self._in_words, line) if OF_ICU.search(line) else line

    def _in_words(self, found: regex.Match[str]) -> str:
        """Return a word with spaces at ICU's boundaries, which count units of UTF-16."""
        import icu

        word = found[0]
        if not OF_ICU.search(word):
            return word
        locale = icu.Locale.getRoot() if self.locale is None else icu.Locale(self.locale)
        boundaries = icu.BreakIterator.createWordInstance(locale)
        boundaries.setText(word)
        at = [k for k, letter in enumerate(word) for _ in range(1 + (letter > "\uffff"))] + [len(word)]
        return " ".join(word[at[start] : at[end]] for start, end in pairwise([0, *boundaries]))
