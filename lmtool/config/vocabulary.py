"""data.vocabulary: the words that a model knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lmtool.config.rules import MISSING, require_whole
from lmtool.errors import UserError

BYTES = 256  # a piece for each, so that every text can be written
PIECES = 8000  # of data.vocabulary.size=null


class Unit(Enum):
    """What one token of the vocabulary is: a word, a character, or a piece of a word (a subword), found by byte-pair
    encoding (Sennrich et al. 2016) or by a unigram model (Kudo 2018).
    """

    word = "word"
    char = "char"
    bpe = "bpe"
    unigram = "unigram"

    @property
    def is_subword(self) -> bool:
        """Whether tokens are pieces of words."""
        return self in (Unit.bpe, Unit.unigram)


class BlankLines(Enum):
    """What a line without words is in text with sentences: left out, or a sentence of `</s>` alone, as for KenLM."""

    skip = "skip"
    sentence = "sentence"


@dataclass(slots=True)
class VocabularyConfig:
    """The words that a model knows; all others become `<unk>`. Of pieces of words, by which every text can be written:
    a file with a tokeniser, or how many of them are learned from train.
    """

    file: str | None = MISSING
    size: int | None = MISSING
    min_count: int = MISSING
    lowercase: bool = MISSING
    unit: Unit = MISSING

    def __post_init__(self) -> None:
        require_whole("data.vocabulary.size", self.size, null=True)
        require_whole("data.vocabulary.min_count", self.min_count)
        if self.file is not None and self.size is not None:
            raise UserError(
                f"data.vocabulary.size={self.size}: data.vocabulary.file={self.file} is the whole vocabulary; "
                "leave one of them out"
            )
        if self.unit.is_subword and self.file is None:
            self.size = PIECES if self.size is None else self.size
            if self.size < BYTES:
                raise UserError(
                    f"data.vocabulary.size={self.size}: must be {BYTES} or more with data.vocabulary.unit="
                    f"{self.unit.value}: each byte is a piece"
                )
