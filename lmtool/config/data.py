"""Settings common to all data sets (group `data`), and settings of the vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from lmtool.config.rules import MISSING, GroupConfig, Settings, require, setting
from lmtool.errors import UserError

if TYPE_CHECKING:
    from lmtool.data.sources.base import ExternalText, Source

BYTES = 256  # number of pieces for single bytes, so that any text can be encoded
PIECES = 8000  # default of data.vocabulary.size for subwords


class Unit(Enum):
    """The unit of a token: a word, a character (code point), a grapheme cluster (what a reader counts as a character),
    or a subword (a piece of a word) found by byte-pair encoding (Sennrich et al. 2016) or by a unigram model (Kudo
    2018).
    """

    word = "word"
    char = "char"
    grapheme = "grapheme"
    bpe = "bpe"
    unigram = "unigram"

    @property
    def is_character(self) -> bool:
        """Whether tokens are characters."""
        return self in (Unit.char, Unit.grapheme)

    @property
    def is_subword(self) -> bool:
        """Whether tokens are subwords."""
        return self in (Unit.bpe, Unit.unigram)


class BlankLines(Enum):
    """Treatment of a line without words in text with sentences: skipped, or a sentence of `</s>` alone as in KenLM."""

    skip = "skip"
    sentence = "sentence"


class WordRule(Enum):
    """The rule by which a word as a reader sees it, with its punctuation, is cut into tokens."""

    whitespace = "whitespace"
    punctuation = "punctuation"
    ptb = "ptb"


class Normalize(Enum):
    """The normal form of text: one of Unicode's, that of CCNet (Wenzek et al. 2020), or none."""

    nfc = "nfc"
    nfd = "nfd"
    nfkc = "nfkc"
    none = "none"
    ccnet = "ccnet"


class Spaces(Enum):
    """What separates words: ASCII white space, or all of Unicode's, and the zero-width space."""

    ascii = "ascii"
    unicode = "unicode"


class Oov(Enum):
    """The treatment of a word outside the vocabulary."""

    error = "error"
    unk = "unk"


LOWERCASE = "true, false, or a language with special rules: tr, az or lt"


def require_lowercase(value: object, key: str) -> None:
    """Raise UserError, naming the key, unless the value is a value of the setting `lowercase`."""
    require(isinstance(value, bool) or value in ("tr", "az", "lt"), key, value, LOWERCASE)


@dataclass(slots=True)
class VocabularyConfig(Settings):
    """The vocabulary of a model; all other words become `<unk>`, or are refused if the vocabulary is closed.

    For subwords, which can encode any text: a tokenizer file, or the number of pieces to learn.
    """

    key_prefix: ClassVar[str] = "data.vocabulary."

    file: str | None = MISSING
    size: int | None = setting(min=1, excludes=("file=<FILE>",), why="the file is the whole vocabulary")
    min_count: int = setting(min=1)
    lowercase: Any = setting(check=require_lowercase, said=LOWERCASE)
    unit: Unit = MISSING
    closed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.closed and self.unit.is_subword:
            raise UserError("data.vocabulary.closed=true: pieces can encode any word; set data.vocabulary.unit=word")
        if self.unit.is_subword and self.file is None:
            self.size = PIECES if self.size is None else self.size
            if self.size < BYTES:
                raise UserError(
                    f"data.vocabulary.size={self.size}: must be {BYTES} or more with data.vocabulary.unit="
                    f"{self.unit.value}: each byte is a piece"
                )


@dataclass(slots=True)
class SegmenterConfig(GroupConfig):
    """Group `segmenter`: how words are found in a script that does not separate them by spaces."""

    key_prefix: ClassVar[str] = "data.segmenter."

    @abstractmethod
    def cut(self, line: str) -> str:
        """Return a line, as the other rules of the data write it, with spaces between its words."""

    def __call__(self, text: str) -> str:
        """Return the lines of a text, each cut. Raises UserError if that changes anything but spaces."""
        return "\n".join(map(self._checked, text.split("\n")))

    def _checked(self, line: str) -> str:
        cut = self.cut(line)
        if cut is not line and "".join(cut.split()) != "".join(line.split()):
            rule = "a segmenter inserts spaces and changes nothing else; correct it"
            raise UserError(f"data.segmenter={self.kind}: {line!r:.60} became {cut!r:.60}: {rule}")
        return cut


@dataclass(slots=True)
class DataConfig(GroupConfig):
    """Group `data`: the source of text.

    takes_word_list: whether data.vocabulary.file may list the words. normalize: the normal form of the text. spaces:
    the characters that separate words. segmenter: an option of segmenter= as its name or a mapping with `kind`, which
    also makes spaces those of Unicode; None or none for none. sentence_end: whether the end of a sentence is predicted,
    as `</s>`. on_error: whether a record that cannot be used, e.g. for
    `<s>` in it, is an error, or left out.
    """

    key_prefix: ClassVar[str] = "data."
    takes_word_list: ClassVar[bool] = False

    name: str = MISSING
    sentences: bool = MISSING
    vocabulary: VocabularyConfig = MISSING
    sentence_end: bool = field(default=True, kw_only=True)
    normalize: Normalize = setting(Normalize.nfc, kw_only=True)
    spaces: Spaces = field(default=Spaces.ascii, kw_only=True)
    segmenter: Any = setting(None, kw_only=True, said="an option of segmenter=, or null")
    on_error: str = setting("stop", words=("stop", "skip"), kw_only=True)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        plain = self.name and all(c.isalnum() or c in "._-" for c in self.name)
        require(bool(plain), "data.name", repr(self.name), "letters, digits, '.', '_' and '-'")
        rules: object = self.vocabulary  # an interpolation may have set it to a string
        require(isinstance(rules, VocabularyConfig), "data.vocabulary", repr(rules), "settings: data.vocabulary.NAME=")
        file = self.vocabulary.file
        if file is not None and not self.takes_word_list:
            raise UserError(f"data.vocabulary.file={file}: data.kind={self.kind} has its own words; leave it null")
        self.segmenter = None if self.segmenter == "none" else self.segmenter
        if self.takes_blank_lines() and not (self.sentences and self.sentence_end):
            why = "sentence_end=false gives it no token" if self.sentences else "sentences=false has no sentences"
            raise UserError(f"data.blank_lines=sentence: data.{why}; leave one out")

    def complete(self, build_option: Callable[[str, Any, str], Any]) -> None:
        """Replace a segmenter's name by its settings. Raises UserError if it does not fit the other settings.

        build_option: builds the settings of an option, given its group, its name and the key of the setting.
        """
        if self.segmenter is None:
            return
        if not isinstance(self.segmenter, SegmenterConfig):
            self.segmenter, self.spaces = build_option("segmenter", self.segmenter, "data.segmenter"), Spaces.unicode
        unit = self.vocabulary.unit
        if unit.is_character or self.drops_tags():
            other = "data.tags=true" if self.drops_tags() else f"data.vocabulary.unit={unit.value}"
            raise UserError(
                f"data.segmenter={self.segmenter.kind}: it finds words, not used with {other}; leave one out"
            )

    def require_usual_tokens(self, why: str) -> None:
        """Raise UserError, saying why, unless tokens are words of an open vocabulary and `</s>` after each sentence."""
        unusual = {"sentences=false": not self.sentences, "sentence_end=false": not self.sentence_end}
        unusual["vocabulary.closed=true"] = self.vocabulary.closed
        if found := next((setting for setting, holds in unusual.items() if holds), None):
            raise UserError(f"data.{found}: {why}")

    def drops_tags(self) -> bool:
        """Return whether the tokens of the text are word/tag and the tag is dropped."""
        return False

    def takes_blank_lines(self) -> bool:
        """Return whether a line without words is a sentence."""
        return False

    def has_valid(self) -> bool:
        """Return whether the settings name a valid split."""
        return True

    @abstractmethod
    def source(self, *, progress: bool, download: bool) -> Source:
        """Return the text of each split without reading it.

        progress: whether to show progress bars. download: whether to download text that is not on this machine; if
        False, such text raises NoSource. Raises UserError if the text is not found.
        """

    def elsewhere(self) -> ExternalText:
        """Return the train split for a program that reads its files. Raises UserError if it is not in files."""
        raise UserError(f"data.kind={self.kind} is not stored in text files that another program could read")

    def others(self, *, progress: bool) -> Source:
        """Return the text of all splits except train. Raises UserError if they have no separate files."""
        raise UserError(f"data.kind={self.kind} has no separate files for splits other than train")
