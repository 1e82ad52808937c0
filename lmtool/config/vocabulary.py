"""data.vocabulary: the words that a model knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lmtool.config.rules import MISSING, require_whole
from lmtool.errors import UserError


class Unit(Enum):
    """What one token of the vocabulary is."""

    word = "word"
    char = "char"


@dataclass(slots=True)
class VocabularyConfig:
    """The words that a model knows; all others become `<unk>`."""

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
