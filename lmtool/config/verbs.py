"""Settings of the verbs that train and score; their values are in conf/VERB.yaml."""

from __future__ import annotations

import math
import re
import sys
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
    is_tied,
)
from lmtool.config.rules import (
    MISSING,
    Settings,
    are_numbers,
    is_number,
    number_or_share,
    require,
    require_block,
    require_whole,
    setting,
)
from lmtool.config.training import TrainingConfig
from lmtool.errors import UserError
from lmtool.system.process import MAX_THREADS

PRUNE_METHODS = ("gain", "entropy")
BITS = (4, 8)  # minimum and maximum bits per value of a quantized n-gram model
WEIGHTS = "null, or a number of 0 or more for each member, as [2,1] or 2:1, divided by their sum"
TUNED, UNION = "tuned", "union"
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|mps")


def require_device(device: str, key: str = "device") -> None:
    """Raise UserError unless `device` is the name of a device."""
    known = isinstance(device, str) and DEVICE.fullmatch(device) is not None
    require(known, key, device, "auto, cpu, cuda, cuda:NUMBER or mps")


def _read_weights(given: Any, members: int, what: str) -> list[float]:
    """Return weights that are given as [2,1,1] or 2:1:1, unchanged.

    what: the members, in words. Raises UserError unless there is a weight of 0 or more for each, and not all are 0.
    """
    try:
        weights = [float(part) for part in given.split(":")] if isinstance(given, str) else given
    except ValueError:
        weights = None
    if not isinstance(weights, list) or len(weights) != members:
        raise UserError(f"weights={given}: must be one for each member, {what}, e.g. [2,1] or 2:1")
    if not are_numbers(weights, 0, sys.float_info.max / members) or not any(weights):
        raise UserError(f"weights={given}: must be numbers of 0 or more, and not all 0")
    return weights


@dataclass(slots=True)
class VerbConfig(Settings):
    """Settings of every verb."""

    options: str | None = MISSING
    store_dir: str = MISSING
    threads: int | None = setting(min=1, max=MAX_THREADS)


@dataclass(slots=True)
class ModelUserConfig(VerbConfig):
    """Settings of a verb that uses one model: a run or an ARPA file."""

    run: str | None = setting(excludes=("arpa=FILE",))
    arpa: str | None = MISSING
    device: str = setting(check=require_device)


@dataclass(slots=True)
class ResamplingConfig(VerbConfig):
    """Settings of a verb that resamples scores to find out whether models differ."""

    resamples: int = setting(min=100, max=1_000_000)
    seed: int = setting(min=0)
    block: Any = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_block(self.block)


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
    prune_entropy: float | None = setting(above=0, below=1, excludes=("prune_to=COUNT",))
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
        tuned = self.smoother is not None and self.smoother.tuning_split() == "valid"
        if (tuned or not isinstance(self.model, CountModelConfig)) and not self.data.has_valid():
            remedy = "give it one, or cut valid and test from data.train, as by data.split.train=0.8"
            raise UserError(f"data.valid has no file, and this training reads it: {remedy}")
        if isinstance(self.model, EncoderConfig) and self.output is not None:
            is_tied(self.model, self.output)  # raises
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
        left_out: tuple[tuple[str, object], ...] = (
            ("prune_counts", self.prune_counts),
            ("limit_vocabulary", self.limit_vocabulary),
        )
        if self.prune_to is not None:
            rule = f"null beside prune_to={self.prune_to}, or set prune_method={PRUNE_METHODS[1]}"
            for name, value in left_out if self.prune_method == PRUNE_METHODS[0] else ():
                require(value is None, name, value, rule)
        if not isinstance(self.model, CountModelConfig):
            for name, value in (*left_out, ("prune_entropy", self.prune_entropy), ("prune_to", self.prune_to)):
                require(value is None, name, value, f"null: model={self.model.kind} is not pruned")
        elif not self.model.counts_words or self.data.vocabulary.unit is not Unit.word:
            rule = f"null: the n-grams of model={self.model.kind} with this data.vocabulary.unit are not of words"
            require(self.limit_vocabulary is None, "limit_vocabulary", self.limit_vocabulary, rule)


def _require_bits(bits: int, key: str) -> None:
    require(bits in (16, *range(BITS[0], BITS[1] + 1)), key, bits, "from 4 to 8, 16, or null")


@dataclass(slots=True)
class ConvertConfig(VerbConfig):
    """Settings of `lmtool convert`."""

    run: str | None = setting(excludes=("arpa=FILE", "runs=[A,B]"))
    arpa: str | None = setting(excludes=("runs=[A,B]",))
    runs: list[str] | None = MISSING
    weights: Any = setting(needs=("runs=[A,B]",), said=WEIGHTS)
    vocabulary: str | None = setting(words=(UNION,), needs=("runs=[A,B]",))
    to: str | None = MISSING
    symbol_table: str | None = setting(needs=("to=FILE",))
    limit_vocabulary: str | None = setting(needs=("to=FILE",), why="a run has the words of its data")
    renormalize: bool = False
    prune_entropy: float | None = setting(above=0, below=1, excludes=("prune_to=COUNT",))
    prune_to: Any = setting(check=number_or_share)
    prune_method: str = MISSING
    quantize: int | None = setting(check=_require_bits)
    data: DataConfig = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if self.runs is not None:
            require(len(self.runs) > 0, "runs", self.runs, "one mixture, or two runs or more, as [A,B]")
            if self.weights is not None:
                self.weights = _read_weights(self.weights, len(self.runs), f"{len(self.runs)} runs")
        rule = "entropy; gain needs the counts, which only lmtool train has"
        require(self.prune_method == PRUNE_METHODS[1], "prune_method", self.prune_method, rule)

    def changes(self) -> dict[str, Any]:
        """Return the settings that change a model, as far as they are set."""
        settings: dict[str, Any] = {"limit_vocabulary": self.limit_vocabulary, "renormalize": self.renormalize or None}
        settings |= {"prune_entropy": self.prune_entropy, "prune_to": self.prune_to, "quantize": self.quantize}
        settings["prune_method"] = None if self.prune_to is None else self.prune_method
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(slots=True)
class TreeVerbConfig(VerbConfig):
    """Settings of `lmtool tree`."""

    data: DataConfig = MISSING
    tree: TreeConfig = MISSING
    run: str | None = None
    words: list[str] | None = setting(prose=True)
    levels: int = setting(min=1, max=8)
    to: str | None = MISSING


@dataclass(slots=True)
class EvalConfig(ModelUserConfig):
    """Settings of `lmtool eval`."""

    arpa: str | None = setting(needs=("text=FILE", "nbest=FILE"), why="it comes without data")
    split: str = MISSING
    text: str | None = setting(excludes=("nbest=FILE",))
    column: str | None = setting(needs=("text=FILE",), excludes=("text=-",))
    across_sentences: bool = setting(needs=("text=FILE",), why="a split is read as the model was trained")
    blank_lines: BlankLines | None = setting(needs=("text=FILE",))
    accuracy: bool = setting(excludes=("nbest=FILE",))
    detail: bool = setting(excludes=("nbest=FILE",))
    unnormalised: bool = setting(excludes=("nbest=FILE",))
    dynamic: bool = setting(excludes=("nbest=FILE", "accuracy=true", "unnormalised=true"))
    dynamic_rule: str = setting(words=("rms", "sgd"))
    dynamic_segment: int = setting(min=1)
    dynamic_lr: float = setting(min=0)
    dynamic_decay: float = setting(min=0, below=1)
    nbest: str | None = MISSING
    nbest_costs: str | None = setting(needs=("nbest=FILE",))
    nbest_weight: float | None = setting(min=0, needs=("nbest=FILE",))
    nbest_word_penalty: Any = setting(needs=("nbest=FILE",), said="null, a number, or tuned")
    nbest_reference: str | None = setting(needs=("nbest=FILE",))
    unk_log10: float | None = setting(min=-1000, max=0, needs=("nbest=FILE",))

    def __post_init__(self) -> None:
        ModelUserConfig.__post_init__(self)
        penalty, can_tune = self.nbest_word_penalty, self.nbest_reference is not None
        known = penalty is None or is_number(penalty, -1e9, 1e9) or (penalty == TUNED and can_tune)
        require(known, "nbest_word_penalty", penalty, f"null, a number, or with nbest_reference=FILE {TUNED}")


@dataclass(slots=True)
class CompareConfig(ResamplingConfig):
    """Settings of `lmtool compare`."""

    runs: list[str] = MISSING
    text: str | None = MISSING
    vocabulary: str | None = setting(words=(UNION,), needs=("text=FILE",))
    split: str = MISSING
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        ResamplingConfig.__post_init__(self)
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
    text: str | None = setting(excludes=("fit_on=cloze",), why="it has no questions")
    vocabulary: str | None = setting(words=(UNION,), needs=("text=FILE",))
    fit_split: str = MISSING
    fit_on: FitOn = MISSING
    fit_contexts: int = setting(min=100)
    weights: Any = setting(excludes=("method=classes",), why="it fits weights for each class", said=WEIGHTS)
    cache: CacheKind | None = setting(needs=("method=linear",))
    cache_size: int = setting(min=1)
    cache_theta: float | None = setting(min=0, needs=("cache=neural",))
    device: str = setting(check=require_device)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        members = len(self.runs) + (self.cache is not None)
        if members < 2:
            raise UserError(f"runs={self.runs}: name two runs or more to mix, as runs=[A,B], or one and a cache")
        cloze = self.fit_on is FitOn.cloze
        rule = "text except with method=log_linear"
        require(not cloze or self.method is MixMethod.log_linear, "fit_on", "cloze", rule)
        if self.weights is not None:
            what = f"{len(self.runs)} runs and a cache" if self.cache else f"{len(self.runs)} runs"
            self.weights = _read_weights(self.weights, members, what)
