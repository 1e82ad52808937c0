"""The settings of predict, generate, neighbors, export, distil, verify and report; values: conf/VERB.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from lmtool.config.data import Oov
from lmtool.config.rules import MISSING, Settings, number_or_share, require, require_block, setting
from lmtool.config.verbs import VerbConfig, require_device, require_one_model
from lmtool.errors import UserError


class Likeness(Enum):
    """The similarity of two vectors."""

    cosine = "cosine"
    dot = "dot"


class Vectors(Enum):
    """Which of a word's vectors."""

    embeddings = "embeddings"
    output = "output"


class What(Enum):
    """The part of a model that is written; auto: by the file's suffix."""

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


@dataclass(slots=True)
class Sampling(Settings):
    """How a word is drawn from a distribution.

    temperature: p^(1/temperature); 0 takes the most probable word. top_k: top-k sampling (Fan et al. 2018). top_p:
    nucleus sampling (Holtzman et al. 2020). Raises UserError for values out of range.
    """

    temperature: float = setting(min=0)
    top_k: int | None = setting(min=1)
    top_p: float | None = setting(above=0, max=1)


@dataclass(slots=True)
class PredictConfig(VerbConfig):
    """`lmtool predict`"""

    run: str | None = MISSING
    arpa: str | None = MISSING
    text: str | None = MISSING
    top: int = setting(min=1)
    sentence_start: bool = MISSING
    oov: Oov = MISSING
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_one_model(self.run, self.arpa)


@dataclass(slots=True)
class GenerateConfig(VerbConfig):
    """`lmtool generate`"""

    run: str | None = MISSING
    arpa: str | None = MISSING
    text: str = MISSING
    count: int = setting(min=1)
    length: int = setting(min=1)
    temperature: float = setting(min=0)
    top_k: int | None = setting(min=1)
    top_p: float | None = setting(above=0, max=1)
    seed: int | None = setting(min=0)
    sentence_start: bool = MISSING
    oov: Oov = MISSING
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_one_model(self.run, self.arpa)


@dataclass(slots=True)
class NeighborsConfig(VerbConfig):
    """`lmtool neighbors`"""

    run: str | None = MISSING
    words: list[str] = MISSING
    top: int = setting(min=1)
    by: Likeness = MISSING
    of: Vectors = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
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
    tokens: int | None = setting(min=1)
    likely: int | None = setting(min=1, max=1000)  # more words per context would not fit into memory
    prune_to: Any = setting(check=number_or_share)
    device: str = setting(check=require_device)


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
    levels: int = setting(min=1, max=8)
    resamples: int = setting(min=100, max=1_000_000)
    block: Any = setting(check=require_block)
    seed: int = setting(min=0)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        most = 5000  # t-SNE's work grows with the square
        words, rule = self.words, f"a number from 3 to {most}, or a list of 3 words or more, such as [cat,dog,'7']"
        if isinstance(words, list):
            require(len(set(map(str, words))) >= 3 and all(isinstance(w, str) for w in words), "words", words, rule)
        else:
            whole = isinstance(words, int) and not isinstance(words, bool)
            require(whole and 3 <= words <= most, "words", words, rule)
