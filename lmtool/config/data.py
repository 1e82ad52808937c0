"""conf/data: what each kind of data set has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require


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
        require(self.size is None or self.size >= 1, "data.vocabulary.size", self.size, "1 or more, or null")
        require(self.min_count >= 1, "data.vocabulary.min_count", self.min_count, "1 or more")


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
            require(value > 0, f"data.split.{name}", value, "more than 0: a count, or a fraction below 1")


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


@dataclass(slots=True)
class PydocData(DataConfig):
    """The docstrings of the running Python's standard library."""

    min_words: int = MISSING
    seed: int = MISSING
    valid_fraction: float = MISSING
    test_fraction: float = MISSING

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
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
            require(getattr(self, name) >= 1, f"data.{name}", getattr(self, name), "1 or more")
        require(self.types >= 2, "data.types", self.types, "2 or more")
        require(self.zipf_exponent >= 0, "data.zipf_exponent", self.zipf_exponent, "0 or more")
        require(0 <= self.repeat < 1, "data.repeat", self.repeat, "from 0 to below 1")
        require(1 <= self.successors <= self.types, "data.successors", self.successors, "from 1 to data.types")
        require(self.sentence_length > 1, "data.sentence_length", self.sentence_length, "more than 1")


@dataclass(slots=True)
class ToyData(DataConfig):
    """Some twenty short sentences that are part of lmtool."""
