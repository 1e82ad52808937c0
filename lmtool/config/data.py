"""conf/data: what each kind of data set has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require, require_seed, require_whole
from lmtool.errors import UserError


class Unit(Enum):
    """What one token of the vocabulary is."""

    word = "word"
    char = "char"


@dataclass(slots=True)
class VocabularyConfig:
    """Which words a model knows; all others become `<unk>`."""

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
                f"data.vocabulary.size={self.size}: data.vocabulary.file={self.file} is the vocabulary as it is; "
                "leave one of them out"
            )


class SplitUnit(Enum):
    """What the sizes of a split count."""

    tokens = "tokens"
    lines = "lines"


@dataclass(slots=True)
class SplitConfig:
    """How one source becomes train, valid and test; the rest after the sizes is test."""

    unit: SplitUnit = MISSING
    train: float = MISSING
    valid: float = MISSING
    shuffle_seed: int | None = MISSING

    def __post_init__(self) -> None:
        for name, value in (("train", self.train), ("valid", self.valid)):
            rule = "more than 0: a count, or a fraction below 1"
            require(0 < value < math.inf, f"data.split.{name}", value, rule)
        require_seed("data.split.shuffle_seed", self.shuffle_seed, null=True)


@dataclass(slots=True)
class DownloadConfig:
    """Where a file is fetched from when it is not under LMTOOL_DATA."""

    url: str = MISSING
    checksum: str = MISSING
    member: str | None = None


@dataclass(slots=True)
class DataConfig:
    """What every data set has."""

    kind: str = MISSING
    name: str = MISSING
    sentences: bool = MISSING
    vocabulary: VocabularyConfig = MISSING

    def __post_init__(self) -> None:
        plain = self.name and all(c.isalnum() or c in "._-" for c in self.name)
        require(bool(plain), "data.name", repr(self.name), "letters, digits, '.', '_' and '-'")
        file = self.vocabulary.file
        if file is not None and not isinstance(self, TextData):
            raise UserError(f"data.vocabulary.file={file}: data.kind={self.kind} has its own words; leave it null")


@dataclass(slots=True)
class TextData(DataConfig):
    """Text files, local or downloaded."""

    train: str = MISSING
    valid: str | None = MISSING
    test: str | None = MISSING
    tags: bool = MISSING
    split: SplitConfig | None = MISSING
    downloads: dict[str, DownloadConfig] = MISSING
    cloze_valid: str | None = MISSING
    cloze_valid_answers: str | None = MISSING
    cloze_test: str | None = MISSING

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        if self.split is not None:
            for name, file in (("valid", self.valid), ("test", self.test)):
                if file is not None:
                    raise UserError(f"data.{name}={file}: data.split cuts it from data.train already; leave one out")
        if self.cloze_valid_answers is not None and self.cloze_valid is None:
            answers = self.cloze_valid_answers
            raise UserError(f"data.cloze_valid_answers={answers}: there are no questions; give data.cloze_valid too")


@dataclass(slots=True)
class PydocData(DataConfig):
    """The docstrings of the running Python's standard library."""

    min_words: int = MISSING
    seed: int = MISSING
    valid_fraction: float = MISSING
    test_fraction: float = MISSING

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        require_whole("data.min_words", self.min_words, 0)
        require_seed("data.seed", self.seed)
        for name in ("valid_fraction", "test_fraction"):
            value = getattr(self, name)
            require(0 < value < 0.5, f"data.{name}", value, "between 0 and 0.5")


@dataclass(slots=True)
class SyntheticData(DataConfig):
    """A seeded source whose entropy is known in closed form."""

    tokens: int = MISSING
    valid_tokens: int = MISSING
    test_tokens: int = MISSING
    types: int = MISSING
    zipf_exponent: float = MISSING
    repeat: float = MISSING
    successors: int = MISSING
    sentence_length: float = MISSING
    seed: int = MISSING

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        for name in ("tokens", "valid_tokens", "test_tokens"):
            require_whole(f"data.{name}", getattr(self, name))
        # Of a Zipf law that is steeper than this nothing but its first word is left.
        require_whole("data.types", self.types, 2, 100_000_000)
        require(0 <= self.zipf_exponent <= 100, "data.zipf_exponent", self.zipf_exponent, "from 0 to 100")
        require(0 <= self.repeat < 1, "data.repeat", self.repeat, "from 0 to below 1")
        require(1 <= self.successors <= self.types, "data.successors", self.successors, "from 1 to data.types")
        # Sentences are drawn whole, in memory.
        length = self.sentence_length
        require(1 < length <= 1e6, "data.sentence_length", length, "more than 1 and at most 1000000")
        require_seed("data.seed", self.seed)
        if self.vocabulary.size is not None:
            size = self.vocabulary.size
            raise UserError(f"data.vocabulary.size={size}: data.kind=synthetic knows all its words; set data.types")


@dataclass(slots=True)
class ToyData(DataConfig):
    """Some twenty short sentences that are part of lmtool."""
