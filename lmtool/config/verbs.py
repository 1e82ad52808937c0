"""Settings of the verbs that train and score; their values are in conf/VERB.yaml."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lmtool.config.data import BlankLines, DataConfig, Unit
from lmtool.config.groups import (
    CountModelConfig,
    CountsConfig,
    EncoderConfig,
    ModelConfig,
    OptimConfig,
    OutputConfig,
    ScheduleConfig,
    SmootherConfig,
    TreeConfig,
    require_tieable,
)
from lmtool.config.rules import MISSING, Settings, number_or_share, require, require_block, require_whole, setting
from lmtool.config.training import TrainingConfig
from lmtool.errors import UserError

MAX_THREADS = 1024  # the libraries end the process if the system refuses a thread
PRUNE_METHODS = ("gain", "entropy")
BITS = (4, 8)  # minimum and maximum bits per value of a quantized n-gram model
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|mps")


def require_device(device: str, key: str = "device") -> None:
    """Raise UserError unless `device` is the name of a device."""
    require(DEVICE.fullmatch(device) is not None, key, device, "auto, cpu, cuda, cuda:NUMBER or mps")


def require_one_model(run: str | None, arpa: str | None) -> None:
    """Raise UserError if both a run and an ARPA file are given."""
    if run is not None and arpa is not None:
        raise UserError(f"run={run} and arpa={arpa} are two models: remove one of the two")


def require_as_many(weights: list[float], members: int, what: str) -> None:
    """Raise UserError unless there is a weight for each member. what: the members, in words."""
    if len(weights) != members:
        raise UserError(f"weights={weights}: must be one for each member, {what}")


def require_linear_weights(weights: list[float], members: int, what: str) -> None:
    """Raise UserError unless there is a weight of 0 or more for each member, and their sum is 1."""
    require_as_many(weights, members, what)
    if any(not w >= 0 for w in weights) or not math.isclose(sum(weights), 1, abs_tol=1e-6):
        raise UserError(f"weights={weights}: must be 0 or more and sum to 1")


@dataclass(slots=True)
class VerbConfig(Settings):
    """Settings of every verb."""

    options: str | None = MISSING
    store_dir: str = MISSING
    threads: int | None = setting(min=1, max=MAX_THREADS)


@dataclass(slots=True)
class PreprocessConfig(VerbConfig):
    """Settings of `lmtool preprocess`."""

    data: DataConfig = MISSING


@dataclass(slots=True)
class TrainConfig(VerbConfig):
    """Settings of `lmtool train`."""

    data: DataConfig = MISSING
    model: ModelConfig = MISSING
    smoother: SmootherConfig | None = None
    counts: CountsConfig | None = None
    prune_counts: list[int] | None = setting(was="prune")
    prune_entropy: float | None = setting(above=0, below=1)
    prune_to: Any = setting(check=number_or_share)
    prune_method: str = setting(words=PRUNE_METHODS)
    limit_vocabulary: str | None = MISSING
    quantize: int | None = setting(min=BITS[0], max=BITS[1])
    output: OutputConfig | None = None
    tree: TreeConfig | None = None
    optim: OptimConfig | None = None
    schedule: ScheduleConfig | None = None
    training: TrainingConfig | None = None
    seed: int = setting(min=0)
    device: str = setting(check=require_device)
    resume: str | None = MISSING
    lr_range: bool = MISSING
    lr_range_limits: list[float] = setting(above=0)
    lr_range_steps: int = setting(min=10, max=1_000_000)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        limits = self.lr_range_limits
        rising = len(limits) == 2 and 0 < limits[0] < limits[1] < math.inf
        require(rising, "lr_range_limits", limits, "two numbers above 0, the lower first, as [1e-5,10]")
        self._require_pruning()
        if not isinstance(self.model, CountModelConfig):
            rule = f"null: model={self.model.kind} is trained in float32; lmtool convert makes its weights smaller"
            require(self.quantize is None, "quantize", self.quantize, rule)
        elif self.lr_range:
            raise UserError(f"lr_range=true: model={self.model.kind} has no learning rate; choose a neural model")
        if isinstance(self.model, EncoderConfig) and self.output is not None:
            require_tieable(self.model, self.output)
        training = self.training
        if training is None or self.lr_range or self.resume is not None:
            return  # no schedule is used, or one that was started under another budget
        if self.schedule is not None and training.steps is not None:
            self.schedule.require_steps(training.steps, f"training.steps={training.steps}")

    def _require_pruning(self) -> None:
        """Raise UserError for pruning settings that are invalid, do not apply to the model, or exclude each other."""
        cutoffs = self.prune_counts if self.prune_counts is not None else [0]
        rule = "cut-offs of 0 or more, one per order, none below the one before it, and 0 for order 1"
        require(cutoffs == sorted(cutoffs) and cutoffs[:1] == [0], "prune_counts", self.prune_counts, rule)
        require_whole("prune_counts", cutoffs[-1], 0)
        threshold = self.prune_entropy
        left_out: tuple[tuple[str, object], ...] = (
            ("prune_counts", self.prune_counts),
            ("limit_vocabulary", self.limit_vocabulary),
        )
        if self.prune_to is not None:
            require(threshold is None, "prune_entropy", threshold, f"null beside prune_to={self.prune_to}")
            rule = f"null beside prune_to={self.prune_to}, or set prune_method={PRUNE_METHODS[1]}"
            for name, value in left_out if self.prune_method == PRUNE_METHODS[0] else ():
                require(value is None, name, value, rule)
        if not isinstance(self.model, CountModelConfig):
            for name, value in (*left_out, ("prune_entropy", threshold), ("prune_to", self.prune_to)):
                require(value is None, name, value, f"null: model={self.model.kind} is not pruned")
        elif not self.model.counts_words or self.data.vocabulary.unit is not Unit.word:
            rule = f"null: the n-grams of model={self.model.kind} with this data.vocabulary.unit are not of words"
            require(self.limit_vocabulary is None, "limit_vocabulary", self.limit_vocabulary, rule)


@dataclass(slots=True)
class ConvertConfig(VerbConfig):
    """Settings of `lmtool convert`."""

    run: str | None = MISSING
    arpa: str | None = MISSING
    runs: list[str] | None = MISSING
    weights: list[float] | None = MISSING
    to: str | None = MISSING
    quantize: int | None = MISSING
    data: DataConfig = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_one_model(self.run, self.arpa)
        bits = self.quantize
        require(bits in (None, 16, *range(BITS[0], BITS[1] + 1)), "quantize", bits, "from 4 to 8, 16, or null")
        if self.runs is None:
            require(self.weights is None, "weights", self.weights, "null without runs=[A,B]")
            return
        require(len(self.runs) > 0, "runs", self.runs, "one mixture, or two runs or more, as [A,B]")
        for name, value in (("run", self.run), ("arpa", self.arpa)):
            require(value is None, name, value, f"left out with runs=[{','.join(self.runs)}]")
        require(bits is None, "quantize", bits, "null with runs: quantize the new run by another lmtool convert")
        if self.weights is not None:
            require_linear_weights(self.weights, len(self.runs), f"{len(self.runs)} runs")


@dataclass(slots=True)
class TreeVerbConfig(VerbConfig):
    """Settings of `lmtool tree`."""

    data: DataConfig = MISSING
    tree: TreeConfig = MISSING
    words: list[str] | None = MISSING
    levels: int = setting(min=1, max=8)
    to: str | None = MISSING


@dataclass(slots=True)
class EvalConfig(VerbConfig):
    """Settings of `lmtool eval`."""

    run: str | None = MISSING
    arpa: str | None = MISSING
    split: str = MISSING
    text: str | None = MISSING
    column: str | None = MISSING
    across_sentences: bool = MISSING
    blank_lines: BlankLines | None = MISSING
    accuracy: bool = MISSING
    detail: bool = MISSING
    unnormalised: bool = MISSING
    nbest: str | None = MISSING
    nbest_costs: str | None = MISSING
    nbest_weight: float | None = setting(min=0)
    nbest_reference: str | None = MISSING
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if self.nbest is None:
            for name in ("nbest_costs", "nbest_weight", "nbest_reference"):
                value = getattr(self, name)
                require(value is None, name, value, "null without nbest=FILE")
        else:
            for name in ("text", "detail", "accuracy", "unnormalised"):
                value = getattr(self, name)
                require(not value, name, value, f"left out with nbest={self.nbest}")
        rule = "left out without text=FILE of documents"
        require(self.column is None or self.text not in (None, "-"), "column", self.column, rule)
        if self.across_sentences:
            rule = "false without text=FILE: a split is read as the model was trained, a hypothesis alone"
            require(self.text is not None, "across_sentences", True, rule)
        if self.blank_lines is not None and self.text is None:
            raise UserError(f"blank_lines={self.blank_lines.value}: must be null without text=FILE")
        require_one_model(self.run, self.arpa)
        if self.arpa is not None and self.text is None and self.nbest is None:
            raise UserError(f"arpa={self.arpa} comes without data: set text=FILE")


@dataclass(slots=True)
class CompareConfig(VerbConfig):
    """Settings of `lmtool compare`."""

    runs: list[str] = MISSING
    split: str = MISSING
    resamples: int = setting(min=100, max=1_000_000)
    seed: int = setting(min=0)
    block: Any = MISSING
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_block(self.block)
        if len(self.runs) < 2 or len(set(self.runs)) < len(self.runs):
            raise UserError(f"runs={self.runs}: name two or more that differ, as runs=[A,B]")


class MixMethod(Enum):
    """The mixing method of an ensemble."""

    linear = "linear"
    classes = "classes"
    log_linear = "log_linear"


class CacheKind(Enum):
    """The cache of an ensemble."""

    unigram = "unigram"
    neural = "neural"


class FitOn(Enum):
    """The data on which the weights of an ensemble are fitted."""

    text = "text"
    cloze = "cloze"


@dataclass(slots=True)
class EnsembleConfig(VerbConfig):
    """Settings of `lmtool ensemble`."""

    runs: list[str] = MISSING
    method: MixMethod = MISSING
    split: str = MISSING
    fit_split: str = MISSING
    fit_on: FitOn = MISSING
    fit_contexts: int = setting(min=100)
    weights: list[float] | None = MISSING
    cache: CacheKind | None = MISSING
    cache_size: int = setting(min=1)
    cache_theta: float | None = setting(min=0)
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        members = len(self.runs) + (self.cache is not None)
        if members < 2:
            raise UserError(f"runs={self.runs}: name two runs or more to mix, as runs=[A,B], or one and a cache")
        if self.cache is not CacheKind.neural:
            require(self.cache_theta is None, "cache_theta", self.cache_theta, "null except with cache=neural")
        cloze = self.fit_on is FitOn.cloze
        rule = "text except with method=log_linear"
        require(not cloze or self.method is MixMethod.log_linear, "fit_on", "cloze", rule)
        if self.method is not MixMethod.linear:
            require(self.cache is None, "cache", self.cache and self.cache.value, "null except with method=linear")
        if self.weights is not None:
            self._require_weights(self.weights, members)

    def _require_weights(self, weights: list[float], members: int) -> None:
        if self.method is MixMethod.classes:
            raise UserError(f"weights={weights}: must be null: method=classes fits weights for each class")
        what = f"{len(self.runs)} runs and a cache" if self.cache else f"{len(self.runs)} runs"
        if self.method is not MixMethod.log_linear:
            require_linear_weights(weights, members, what)
            return
        require_as_many(weights, members, what)
        if not all(0 <= w < math.inf for w in weights) or not any(weights):
            raise UserError(f"weights={weights}: must be 0 or more, and not all 0")
