"""Settings of the verbs that use trained models, and the table of all verbs; their values are in conf/VERB.yaml."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from lmtool.config.data import LOWERCASE, BlankLines, Normalize, Oov, WordRule, require_lowercase
from lmtool.config.rules import MISSING, Settings, number_or_share, require, setting
from lmtool.config.verbs import (
    CompareConfig,
    ConvertConfig,
    EnsembleConfig,
    EvalConfig,
    ModelUserConfig,
    PreprocessConfig,
    ResamplingConfig,
    TrainConfig,
    TreeVerbConfig,
    VerbConfig,
    require_device,
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


@dataclass
class Sampling(Settings):
    """Settings for drawing a word from a distribution.

    temperature: p^(1/temperature); 0 takes the most probable word. top_k: top-k sampling (Fan et al. 2018). top_p:
    nucleus sampling (Holtzman et al. 2020). Raises UserError for values out of range.
    """

    temperature: float = setting(min=0)
    top_k: int | None = setting(min=1)
    top_p: float | None = setting(above=0, max=1)


@dataclass(slots=True)
class PredictConfig(ModelUserConfig):
    """Settings of `lmtool predict`."""

    text: str | None = setting(prose=True)
    flush: str | None = setting(words=("line",), excludes=("text=TEXT",))
    top: int = setting(min=1)
    paths: bool = False
    sentence_start: bool = MISSING
    oov: Oov = MISSING


@dataclass(slots=True)
class GenerateConfig(ModelUserConfig, Sampling):
    """Settings of `lmtool generate`."""

    text: str = setting(prose=True)
    count: int = setting(min=1)
    length: int = setting(min=1)
    seed: int | None = setting(min=0)
    sentence_start: bool = MISSING
    oov: Oov = MISSING


@dataclass(slots=True)
class NeighborsConfig(VerbConfig):
    """Settings of `lmtool neighbors`."""

    run: str | None = MISSING
    words: list[str] = setting(prose=True)
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
    license: str | None = setting(needs=("to=card",))
    language: str | None = setting(needs=("to=card",))


@dataclass(slots=True)
class PushConfig(VerbConfig):
    """Settings of `lmtool push`."""

    run: str | None = MISSING
    to: str = MISSING
    private: bool = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require(self.to.startswith("hub:"), "to", self.to, "a name on the Hugging Face Hub, as hub:OWNER/NAME")


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
class ReportConfig(ResamplingConfig):
    """Settings of `lmtool report`. words: a number, or a list."""

    paths: list[str] = MISSING
    map: MapKind = MISSING
    words: Any = setting(prose=True)
    levels: int = setting(min=1, max=8)

    def __post_init__(self) -> None:
        ResamplingConfig.__post_init__(self)
        most = 5000  # the cost of t-SNE grows with the square
        words, rule = self.words, f"a number from 3 to {most}, or a list of 3 words or more, such as [cat,dog,'7']"
        if isinstance(words, list):
            require(len(set(map(str, words))) >= 3 and all(isinstance(w, str) for w in words), "words", words, rule)
        else:
            whole = isinstance(words, int) and not isinstance(words, bool)
            require(whole and 3 <= words <= most, "words", words, rule)


@dataclass(slots=True)
class ScoreConfig(ModelUserConfig):
    """Settings of `lmtool score`."""

    tokenizer: str | None = setting(needs=("arpa=FILE",), why="a run has its own")
    normalize: Normalize | None = setting(was="normalise")
    run_out: str | None = MISSING
    target: str | None = setting(
        excludes=(
            *("run=FOLDER", "arpa=FILE", "run_out=FOLDER", "across_sentences=true", "blank_lines=X", "text=-"),
            *("bucket_split=SPLIT", "bucket_percentiles=FILE", "most_oov=X"),
        ),
        why="hashed n-grams need no model, and text is read twice",
    )
    text: str = MISSING
    flush: str | None = setting(words=("line",), needs=("text=-",))
    column: str | None = MISSING
    columns: list[str] | None = setting(needs=("column=NAME",))
    on_error: str | None = setting(words=("stop", "skip"), was="broken")
    across_sentences: bool = MISSING
    blank_lines: BlankLines | None = MISSING
    to: str | None = MISSING
    bom: bool = setting(needs=("to=FILE",))
    prefix: str = MISSING
    buckets: list[str] | None = setting(needs=("to=FILE",))  # a column of it
    bucket_quantiles: list[float] | None = setting(needs=("buckets=[A,B]",), excludes=("bucket_limits=[X]",))
    bucket_limits: list[float] | None = setting(needs=("buckets=[A,B]",))
    bucket_split: str | None = setting(
        needs=("buckets=[A,B]",), excludes=("bucket_limits=[X]", "run_out=FOLDER", "arpa=FILE")
    )
    bucket_percentiles: str | None = setting(
        needs=("buckets=[A,B]",), excludes=("bucket_limits=[X]", "bucket_split=SPLIT", "run_out=FOLDER")
    )
    bucket_language: str | None = setting(needs=("bucket_percentiles=FILE",))
    filter: str | None = MISSING
    filter_scores: bool = setting(needs=("filter=FILE",))
    most: float | None = setting(needs=("filter=FILE",))
    least: float | None = setting(needs=("filter=FILE",))
    share: float | None = setting(above=0, below=1, needs=("filter=FILE",), excludes=("most=X",))
    selection: str = setting(words=("top", "sample"))
    seed: int = setting(min=0)
    most_oov: float | None = setting(min=0, below=1, needs=("filter=FILE", "buckets=[A,B]"))

    def __post_init__(self) -> None:
        ModelUserConfig.__post_init__(self)
        if self.to is None and self.filter is None:
            raise UserError("nothing is to be written: give to=FILE.tsv for the scores, or filter=FILE")
        if self.to is None and self.columns is not None:
            raise UserError(f"columns={self.columns}: needs to=FILE, which gets them before the scores")
        if self.text == "-" and self.filter is not None and (self.to, self.share) != (None, None):
            raise UserError(f"filter={self.filter}: text=- is read once: leave out to= and share=")
        limits = {"most": self.most, "least": self.least}
        if self.filter is not None and all(x is None for x in (*limits.values(), self.share, self.most_oov)):
            raise UserError(f"filter={self.filter}: say what passes, by most=, least=, share= or most_oov=")
        lowest, rule = 1.0, "a perplexity, 1 or more, or null"
        if weighs := self.run_out is not None or self.target is not None:
            lowest, rule = -sys.float_info.max, "a difference in nats, or null"
        if self.selection == "sample" and (self.share is None or not weighs):
            raise UserError("selection=sample: needs share=X, and weights by target=FILE or run_out=FOLDER")
        for name, value in limits.items():
            require(value is None or lowest <= value < math.inf, name, value, rule)
        if self.most is not None and self.least is not None:
            require(self.least <= self.most, "least", self.least, f"at most most={self.most}")
        if self.buckets is not None:
            self._require_buckets(self.buckets, lowest)
        if self.bucket_percentiles is not None and self.bucket_language is None:
            raise UserError(f"bucket_percentiles={self.bucket_percentiles}: name its column, as bucket_language=en")

    def ranks_texts(self) -> bool:
        """Return whether the limits of the buckets are quantiles of the texts, which need all scores."""
        given = (self.bucket_limits, self.bucket_split, self.bucket_percentiles)
        return self.buckets is not None and all(each is None for each in given)

    def _require_buckets(self, names: list[str], lowest: float) -> None:
        rule = "two names or more that differ, the lowest first, as [head,middle,tail]"
        differ = len(set(names)) == len(names) > 1 and all(name.split() == [name] for name in names)
        require(differ, "buckets", names, rule)
        cuts = len(names) - 1
        rule = f"{cuts} shares between 0 and 1, ascending, one less than buckets"
        shares = self.bucket_quantiles
        require(_ascend(shares, cuts, above=0, below=1), "bucket_quantiles", shares, rule)
        what = "perplexities of 1 or more" if lowest == 1 else "differences"
        rule = f"{cuts} {what}, ascending, one less than buckets"
        above = math.nextafter(lowest, -math.inf)
        require(_ascend(self.bucket_limits, cuts, above, math.inf), "bucket_limits", self.bucket_limits, rule)


def _ascend(values: list[float] | None, count: int, above: float, below: float) -> bool:
    """Return whether values are not given, or `count` ascending ones between two others."""
    return values is None or (len(values) == count and all(a < b for a, b in pairwise([above, *values, below])))


@dataclass(slots=True)
class SeveralModelsConfig(ModelUserConfig):
    """Settings of a verb that uses one model or several, side by side, and cuts printed words for them."""

    runs: list[str] | None = setting(excludes=("run=FOLDER", "arpa=FILE"))
    words: WordRule = MISSING
    marks: bool = MISSING
    lowercase: Any = setting(check=require_lowercase, said=LOWERCASE)
    on_error: str | None = setting(words=("stop", "skip"))
    prefix: str = MISSING

    def __post_init__(self) -> None:
        ModelUserConfig.__post_init__(self)
        if self.runs is not None and (not self.runs or len(set(self.runs)) < len(self.runs)):
            raise UserError(f"runs={self.runs}: name one or more that differ, as runs=[A,B]")


@dataclass(slots=True)
class PairsConfig(SeveralModelsConfig):
    """Settings of `lmtool pairs`."""

    text: str = setting(was="data")
    criterion: str = setting(words=("sum", "mean"))
    resamples: int = setting(min=100, max=1_000_000)
    seed: int = setting(min=0)
    to: str | None = MISSING
    bom: bool = setting(needs=("to=FILE",))
    items: str | None = MISSING


@dataclass(slots=True)
class SurprisalConfig(SeveralModelsConfig):
    """Settings of `lmtool surprisal`."""

    text: str = MISSING
    flush: str | None = setting(words=("line",), needs=("text=-",))
    word_column: str | None = setting(excludes=("text=-",))
    item_column: list[str] | None = setting(excludes=("text=-",))
    sentence_column: str | None = setting(excludes=("text=-",))
    sentences: str | None = setting(words=("punctuation", "item"), excludes=("sentence_column=NAME",))
    unit: str = setting(words=("bits", "nats", "log10"))
    entropy: bool = MISSING
    spillover: int = setting(min=0, max=100)
    end_of_sentence: str = setting(words=("drop", "add_to_last"))
    across_sentences: bool = MISSING
    to: str | None = MISSING
    bom: bool = setting(needs=("to=FILE",))


SETTINGS: dict[str, type[VerbConfig]] = {
    "preprocess": PreprocessConfig,
    "train": TrainConfig,
    "eval": EvalConfig,
    "score": ScoreConfig,
    "pairs": PairsConfig,
    "surprisal": SurprisalConfig,
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
    "push": PushConfig,
}
