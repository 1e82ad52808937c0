"""Settings of the verbs that use trained models, and the table of all verbs; their values are in conf/VERB.yaml."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from lmtool.config.data import BlankLines, Oov
from lmtool.config.rules import MISSING, Settings, number_or_share, require, require_block, setting
from lmtool.config.verbs import (
    CompareConfig,
    ConvertConfig,
    EnsembleConfig,
    EvalConfig,
    PreprocessConfig,
    TrainConfig,
    TreeVerbConfig,
    VerbConfig,
    require_device,
    require_one_model,
)
from lmtool.errors import UserError


class Likeness(Enum):
    """The similarity measure of two vectors."""

    cosine = "cosine"
    dot = "dot"


class Vectors(Enum):
    """The kind of a word's vector."""

    embeddings = "embeddings"
    output = "output"


class What(Enum):
    """The part of a model to write; auto: chosen by the file's suffix."""

    auto = "auto"
    embeddings = "embeddings"
    output = "output"


class WeightType(Enum):
    """The data type of exported weight matrices; int8 has a float32 scale per row."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


class MapKind(Enum):
    """The projection of word vectors to two dimensions."""

    pca = "pca"
    tsne = "tsne"
    none = "none"


@dataclass(slots=True)
class Sampling(Settings):
    """Settings for drawing a word from a distribution.

    temperature: p^(1/temperature); 0 takes the most probable word. top_k: top-k sampling (Fan et al. 2018). top_p:
    nucleus sampling (Holtzman et al. 2020). Raises UserError for values out of range.
    """

    temperature: float = setting(min=0)
    top_k: int | None = setting(min=1)
    top_p: float | None = setting(above=0, max=1)


@dataclass(slots=True)
class PredictConfig(VerbConfig):
    """Settings of `lmtool predict`."""

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
    """Settings of `lmtool generate`."""

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
    """Settings of `lmtool neighbors`."""

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
    """Settings of `lmtool export`."""

    run: str | None = MISSING
    to: str = MISSING
    what: What = MISSING
    dtype: WeightType = MISSING


@dataclass(slots=True)
class DistilConfig(VerbConfig):
    """Settings of `lmtool distil`."""

    run: str = MISSING
    like: str = MISSING
    tokens: int | None = setting(min=1)
    likely: int | None = setting(min=1, max=1000)  # more words per context would not fit into memory
    prune_to: Any = setting(check=number_or_share)
    device: str = setting(check=require_device)


@dataclass(slots=True)
class VerifyConfig(VerbConfig):
    """Settings of `lmtool verify`."""

    paths: list[str] = MISSING


@dataclass(slots=True)
class ReportConfig(VerbConfig):
    """Settings of `lmtool report`. words: a number, or a list."""

    paths: list[str] = MISSING
    map: MapKind = MISSING
    words: Any = MISSING
    levels: int = setting(min=1, max=8)
    resamples: int = setting(min=100, max=1_000_000)
    block: Any = MISSING
    seed: int = setting(min=0)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_block(self.block)
        most = 5000  # the cost of t-SNE grows with the square
        words, rule = self.words, f"a number from 3 to {most}, or a list of 3 words or more, such as [cat,dog,'7']"
        if isinstance(words, list):
            require(len(set(map(str, words))) >= 3 and all(isinstance(w, str) for w in words), "words", words, rule)
        else:
            whole = isinstance(words, int) and not isinstance(words, bool)
            require(whole and 3 <= words <= most, "words", words, rule)


@dataclass(slots=True)
class ScoreConfig(VerbConfig):
    """Settings of `lmtool score`."""

    run: str | None = MISSING
    arpa: str | None = MISSING
    run_out: str | None = MISSING
    text: str = MISSING
    column: str | None = MISSING
    across_sentences: bool = MISSING
    blank_lines: BlankLines | None = MISSING
    to: str | None = MISSING
    buckets: list[str] | None = MISSING
    bucket_quantiles: list[float] | None = MISSING
    bucket_limits: list[float] | None = MISSING
    bucket_split: str | None = MISSING
    filter: str | None = MISSING
    most: float | None = MISSING
    least: float | None = MISSING
    share: float | None = setting(above=0, below=1)
    most_oov: float | None = setting(min=0, below=1)
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_one_model(self.run, self.arpa)
        if self.to is None and self.filter is None:
            raise UserError("nothing is to be written: give to=FILE.tsv for the scores, or filter=FILE")
        require(self.column is None or self.text != "-", "column", self.column, "left out with text=-")
        require(self.filter is None or self.text != "-", "filter", self.filter, "left out with text=-: it is read once")
        self._require_filter()
        self._require_buckets()

    def _require_filter(self) -> None:
        bounds = {"most": self.most, "least": self.least, "share": self.share}
        if self.filter is None:
            for name, value in bounds.items():
                require(value is None, name, value, "null without filter=FILE")
        elif all(value is None for value in (*bounds.values(), self.most_oov)):
            raise UserError(f"filter={self.filter}: say what passes, by most=, least=, share= or most_oov=")
        limited = self.filter is not None or self.buckets is not None
        rule = "null without filter=FILE and buckets, which it limits"
        require(self.most_oov is None or limited, "most_oov", self.most_oov, rule)
        for name, value in (("most", self.most), ("least", self.least)):
            if self.run_out is None:
                fits = value is None or 1 <= value < math.inf
                require(fits, name, value, "a perplexity, 1 or more, or null")
            else:
                require(value is None or math.isfinite(value), name, value, "a difference in nats per token, or null")
        if self.most is not None and self.least is not None:
            require(self.least <= self.most, "least", self.least, f"at most most={self.most}")
        if self.share is not None:
            require(self.most is None, "most", self.most, "null with share, which is another such limit")

    def _require_buckets(self) -> None:
        quantiles, limits = self.bucket_quantiles, self.bucket_limits
        given = {"bucket_quantiles": quantiles, "bucket_limits": limits, "bucket_split": self.bucket_split}
        if self.buckets is None:
            for name, value in given.items():
                require(value is None, name, value, "null without buckets")
            return
        rule = "two names or more that differ, the lowest first, as [head,middle,tail]"
        names = self.buckets
        require(
            len(set(names)) == len(names) > 1 and all(name.split() == [name] for name in names), "buckets", names, rule
        )
        require(self.to is not None, "buckets", names, "null without to=FILE, of which they are a column")
        cuts = len(names) - 1
        rule = f"{cuts} shares between 0 and 1, ascending, one less than buckets"
        inside = quantiles is None or (len(quantiles) == cuts and all(0 < q < 1 for q in quantiles))
        require(inside and _ascend(quantiles), "bucket_quantiles", quantiles, rule)
        what = "perplexities of 1 or more" if self.run_out is None else "differences"
        rule = f"{cuts} {what}, ascending, one less than buckets"
        lowest = 1 if self.run_out is None else -math.inf
        fit = limits is None or (len(limits) == cuts and all(lowest <= x and math.isfinite(x) for x in limits))
        require(fit and _ascend(limits), "bucket_limits", limits, rule)
        if limits is not None:
            require(quantiles is None, "bucket_quantiles", quantiles, "null with bucket_limits")
            require(self.bucket_split is None, "bucket_split", self.bucket_split, "null with bucket_limits")
        if self.bucket_split is not None:
            require(self.run_out is None, "bucket_split", self.bucket_split, "null with run_out")
            require(self.arpa is None, "bucket_split", self.bucket_split, "null with arpa, which comes without data")


def _ascend(values: list[float] | None) -> bool:
    return values is None or all(low < high for low, high in pairwise(values))


SETTINGS: dict[str, type[VerbConfig]] = {
    "preprocess": PreprocessConfig,
    "train": TrainConfig,
    "eval": EvalConfig,
    "score": ScoreConfig,
    "ensemble": EnsembleConfig,
    "compare": CompareConfig,
    "distil": DistilConfig,
    "tree": TreeVerbConfig,
    "predict": PredictConfig,
    "generate": GenerateConfig,
    "neighbors": NeighborsConfig,
    "report": ReportConfig,
    "verify": VerifyConfig,
    "export": ExportConfig,
    "convert": ConvertConfig,
}
