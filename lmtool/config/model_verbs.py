"""The settings of predict, generate, neighbors, export, distil, verify and report; values: conf/VERB.yaml."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lmtool.config.rules import MISSING, number_or_share, require, require_block, require_seed, require_whole
from lmtool.config.verbs import VerbConfig, require_device, require_one_model
from lmtool.errors import UserError


class Oov(Enum):
    """How a word outside the vocabulary is treated."""

    error = "error"
    unk = "unk"


class Likeness(Enum):
    """The similarity of two vectors."""

    cosine = "cosine"
    dot = "dot"


class Vectors(Enum):
    """Which of a word's vectors."""

    embeddings = "embeddings"
    output = "output"


class What(Enum):
    """What is written of a model; auto: as the file's suffix says."""

    auto = "auto"
    embeddings = "embeddings"
    output = "output"


class WeightType(Enum):
    """The type of the matrices of exported weights; int8 with a float32 scale per row."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


class MapKind(Enum):
    """How word vectors are projected to two dimensions."""

    pca = "pca"
    tsne = "tsne"
    none = "none"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a word is drawn from a distribution.

    temperature: p^(1/temperature); 0 takes the most probable word. top_k: top-k sampling (Fan et al. 2018). top_p:
    nucleus sampling (Holtzman et al. 2020). Raises UserError for values out of range.
    """

    temperature: float
    top_k: int | None
    top_p: float | None

    def __post_init__(self) -> None:
        require(0 <= self.temperature < math.inf, "temperature", self.temperature, "0 (the most probable word) or more")
        require_whole("top_k", self.top_k, null=True)
        require(self.top_p is None or 0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1, or null")


@dataclass(slots=True)
class PredictConfig(VerbConfig):
    """`lmtool predict`"""

    run: str | None = MISSING
    arpa: str | None = MISSING
    text: str | None = MISSING
    top: int = MISSING
    sentence_start: bool = MISSING
    oov: Oov = MISSING
    device: str = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_one_model(self.run, self.arpa)
        require_whole("top", self.top)
        require_device(self.device)


@dataclass(slots=True)
class GenerateConfig(VerbConfig):
    """`lmtool generate`"""

    run: str | None = MISSING
    arpa: str | None = MISSING
    text: str = MISSING
    count: int = MISSING
    length: int = MISSING
    temperature: float = MISSING
    top_k: int | None = MISSING
    top_p: float | None = MISSING
    seed: int | None = MISSING
    sentence_start: bool = MISSING
    oov: Oov = MISSING
    device: str = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_one_model(self.run, self.arpa)
        require_whole("count", self.count)
        require_whole("length", self.length)
        require_seed("seed", self.seed, null=True)
        Sampling(self.temperature, self.top_k, self.top_p)
        require_device(self.device)


@dataclass(slots=True)
class NeighborsConfig(VerbConfig):
    """`lmtool neighbors`"""

    run: str | None = MISSING
    words: list[str] = MISSING
    top: int = MISSING
    by: Likeness = MISSING
    of: Vectors = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_whole("top", self.top)
        if not self.words:
            raise UserError("words=[]: name at least one word, as lmtool neighbors value")


@dataclass(slots=True)
class ExportConfig(VerbConfig):
    """`lmtool export`"""

    run: str | None = MISSING
    to: str = MISSING
    what: What = MISSING
    dtype: WeightType = MISSING


@dataclass(slots=True)
class DistilConfig(VerbConfig):
    """`lmtool distil`"""

    run: str = MISSING
    like: str = MISSING
    tokens: int | None = MISSING
    likely: int | None = MISSING
    prune_to: Any = MISSING
    device: str = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_whole("tokens", self.tokens, null=True)
        require_whole("likely", self.likely, 1, MOST_LIKELY, null=True)
        if self.prune_to is not None:
            number_or_share(self.prune_to, "prune_to")
        require_device(self.device)


MOST_LIKELY = 1000  # words a place: more would not fit into memory
MOST_MAPPED = 5000  # t-SNE's work grows with the square


@dataclass(slots=True)
class VerifyConfig(VerbConfig):
    """`lmtool verify`"""

    paths: list[str] = MISSING


@dataclass(slots=True)
class ReportConfig(VerbConfig):
    """`lmtool report`; words: a number, or a list."""

    paths: list[str] = MISSING
    map: MapKind = MISSING
    words: Any = MISSING
    levels: int = MISSING
    resamples: int = MISSING
    block: Any = MISSING
    seed: int = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        words, rule = self.words, f"a number from 3 to {MOST_MAPPED}, or a list of 3 words or more, as [cat,dog,'7']"
        if isinstance(words, list):
            require(len(set(map(str, words))) >= 3 and all(isinstance(w, str) for w in words), "words", words, rule)
        else:
            whole = isinstance(words, int) and not isinstance(words, bool)
            require(whole and 3 <= words <= MOST_MAPPED, "words", words, rule)
        require_whole("levels", self.levels, 1, 8)
        require_whole("resamples", self.resamples, 100, 1_000_000)
        require_block(self.block)
        require_seed("seed", self.seed)
