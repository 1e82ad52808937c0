"""The types and rules of every setting; the values stand in conf/*.yaml alone.

Each class here is the schema of one YAML file or group option. `register()` hands them to Hydra, so that
a misspelt key or a value of the wrong type fails while the configuration is composed, before any work
starts. `typed()` turns a composed configuration into real nested dataclasses; below the command layer
there are only these, never a DictConfig.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lmtool.errors import UserError


def _require(condition: bool, key: str, value: object, rule: str) -> None:
    if not condition:
        raise UserError(f"{key}={value}: must be {rule}")


# ------------------------------------------------------------------------------------------- data


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
        _require(self.size is None or self.size >= 1, "data.vocabulary.size", self.size, "1 or more, or null")
        _require(self.min_count >= 1, "data.vocabulary.min_count", self.min_count, "1 or more")


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
            _require(value > 0, f"data.split.{name}", value, "more than 0: a count, or a fraction below 1")


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
        _require(bool(plain), "data.name", repr(self.name), "letters, digits, '.', '_' and '-'")


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
            _require(0 < value < 0.5, f"data.{name}", value, "between 0 and 0.5")


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
            _require(getattr(self, name) >= 1, f"data.{name}", getattr(self, name), "1 or more")
        _require(self.types >= 2, "data.types", self.types, "2 or more")
        _require(self.zipf_exponent >= 0, "data.zipf_exponent", self.zipf_exponent, "0 or more")
        _require(0 <= self.repeat < 1, "data.repeat", self.repeat, "from 0 to below 1")
        _require(1 <= self.successors <= self.types, "data.successors", self.successors, "from 1 to data.types")
        _require(self.sentence_length > 1, "data.sentence_length", self.sentence_length, "more than 1")


@dataclass(slots=True)
class ToyData(DataConfig):
    """Some twenty short sentences that are part of lmtool."""


# ------------------------------------------------------------------------------------------- models


@dataclass(slots=True)
class ModelConfig:
    """What every model has."""

    kind: str = MISSING


@dataclass(slots=True)
class NgramModelConfig(ModelConfig):
    """Count-based model of a fixed order."""

    order: int = MISSING

    def __post_init__(self) -> None:
        _require(1 <= self.order <= 16, "model.order", self.order, "from 1 to 16")


@dataclass(slots=True)
class SmootherConfig:
    """What every smoother has."""

    kind: str = MISSING


@dataclass(slots=True)
class ModifiedKneserNeyConfig(SmootherConfig):
    """Interpolated modified Kneser-Ney (Chen & Goodman 1998)."""

    discounts: list[list[float]] | None = MISSING
    like_kenlm: bool = MISSING

    def __post_init__(self) -> None:
        for triple in self.discounts or []:
            valid = len(triple) == 3 and all(0 <= d <= k + 1 for k, d in enumerate(triple))
            _require(valid, "smoother.discounts", triple, "three numbers an order, with 0 <= D_k <= k")


class Activation(Enum):
    """The hidden layer's non-linearity."""

    tanh = "tanh"
    gelu = "gelu"
    relu = "relu"


@dataclass(slots=True)
class NplmModel(ModelConfig):
    """Neural probabilistic language model (Bengio et al. 2003)."""

    context_size: int = MISSING
    embedding_dim: int = MISSING
    hidden_dim: int = MISSING
    direct: bool = MISSING
    tied: bool = MISSING
    activation: Activation = MISSING
    layer_norm: bool = MISSING
    dropout: float = MISSING

    def __post_init__(self) -> None:
        for name in ("context_size", "embedding_dim", "hidden_dim"):
            _require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "1 or more")
        _require(0 <= self.dropout < 1, "model.dropout", self.dropout, "from 0 to below 1")


# ------------------------------------------------------------------------------------------- training


@dataclass(slots=True)
class OptimConfig:
    """What every optimiser has."""

    kind: str = MISSING
    lr: float = MISSING

    def __post_init__(self) -> None:
        _require(self.lr > 0 and math.isfinite(self.lr), "optim.lr", self.lr, "more than 0")


@dataclass(slots=True)
class SgdOptim(OptimConfig):
    """Stochastic gradient descent."""

    momentum: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        _require(0 <= self.momentum < 1, "optim.momentum", self.momentum, "from 0 to below 1")


@dataclass(slots=True)
class AdamOptim(OptimConfig):
    """Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019)."""

    beta1: float = MISSING
    beta2: float = MISSING
    eps: float = MISSING
    weight_decay: float = MISSING

    def __post_init__(self) -> None:
        OptimConfig.__post_init__(self)
        _require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "from 0 to below 1")
        _require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "from 0 to below 1")
        _require(self.eps > 0, "optim.eps", self.eps, "more than 0")
        _require(self.weight_decay >= 0, "optim.weight_decay", self.weight_decay, "0 or more")


class Schedule(Enum):
    """How the learning rate moves over the budget, after the warm-up."""

    constant = "constant"
    linear = "linear"
    cosine = "cosine"


@dataclass(slots=True)
class TrainingConfig:
    """The budget and the pace of neural training."""

    epochs: int | None = MISSING
    minutes: float | None = MISSING
    batch_size: int = MISSING
    evaluate_every: float = MISSING
    clip_norm: float | None = MISSING
    schedule: Schedule = MISSING
    warmup: float = MISSING

    def __post_init__(self) -> None:
        if self.epochs is None and self.minutes is None:
            raise UserError("training.epochs and training.minutes are both null: give one of them a value")
        _require(self.epochs is None or self.epochs >= 1, "training.epochs", self.epochs, "1 or more, or null")
        _require(self.minutes is None or self.minutes > 0, "training.minutes", self.minutes, "more than 0, or null")
        _require(self.batch_size >= 1, "training.batch_size", self.batch_size, "1 or more")
        _require(self.evaluate_every > 0, "training.evaluate_every", self.evaluate_every, "more than 0")
        _require(
            self.clip_norm is None or self.clip_norm > 0,
            "training.clip_norm",
            self.clip_norm,
            "more than 0, or null",
        )
        _require(0 <= self.warmup < 1, "training.warmup", self.warmup, "from 0 to below 1")


# ------------------------------------------------------------------------------------------- verbs


@dataclass(slots=True)
class VerbConfig:
    """What every verb has."""

    store_dir: str = MISSING
    threads: int | None = MISSING

    def __post_init__(self) -> None:
        _require(self.threads is None or self.threads >= 1, "threads", self.threads, "1 or more, or null")


@dataclass(slots=True)
class PreprocessConfig(VerbConfig):
    """`lmtool preprocess`"""

    data: DataConfig = MISSING


@dataclass(slots=True)
class TrainConfig(VerbConfig):
    """`lmtool train`"""

    data: DataConfig = MISSING
    model: ModelConfig = MISSING
    smoother: SmootherConfig | None = None
    optim: OptimConfig | None = None
    training: TrainingConfig | None = None
    seed: int = MISSING


@dataclass(slots=True)
class EvalConfig(VerbConfig):
    """`lmtool eval`"""

    run: str | None = MISSING
    split: str = MISSING


@dataclass(slots=True)
class EnsembleConfig(VerbConfig):
    """`lmtool ensemble`"""

    runs: list[str] = MISSING
    split: str = MISSING
    fit_split: str = MISSING
    weights: list[float] | None = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if len(self.runs) < 2:
            raise UserError(f"runs={self.runs}: name two runs or more to mix, as runs=[A,B]")
        if self.weights is None:
            return
        if len(self.weights) != len(self.runs):
            raise UserError(f"weights={self.weights}: {len(self.runs)} runs need as many weights")
        if any(not w >= 0 for w in self.weights) or not math.isclose(sum(self.weights), 1, abs_tol=1e-6):
            raise UserError(f"weights={self.weights}: must be 0 or more and sum to 1")


SCHEMAS: dict[str, dict[str, type]] = {
    "": {
        "schema_preprocess": PreprocessConfig,
        "schema_train": TrainConfig,
        "schema_eval": EvalConfig,
        "schema_ensemble": EnsembleConfig,
    },
    "data": {
        "schema_text": TextData,
        "schema_pydoc": PydocData,
        "schema_synthetic": SyntheticData,
        "schema_toy": ToyData,
    },
    "model": {"schema_ngram": NgramModelConfig, "schema_nplm": NplmModel},
    "smoother": {"schema_modified_kneser_ney": ModifiedKneserNeyConfig},
    "optim": {"schema_sgd": SgdOptim, "schema_adam": AdamOptim},
    "training": {"schema_training": TrainingConfig},
}


def register() -> None:
    """Hand the schemas to Hydra's store, each to be named first in the defaults list of its YAML file."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for group, nodes in SCHEMAS.items():
        for name, node in nodes.items():
            store.store(group=group or None, name=name, node=node, provider="lmtool")


T = TypeVar("T")


def typed(config: DictConfig, expected: type[T]) -> T:
    """The composed configuration as a nested dataclass of the class `expected`.

    Raises UserError for a mandatory value that is not given and for one out of its range.
    """
    try:
        made = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        if isinstance(error, MissingMandatoryValue):
            key = getattr(error, "full_key", None) or "a setting"
            raise UserError(f"{key} has no value: give one on the command line, as {key}=...") from None
        raise
    except AttributeError as error:
        # A key that was forced in with + has no slot in the dataclass.
        name = str(error).rpartition("attribute ")[2]
        raise UserError(f"no key {name}: + cannot add settings that lmtool does not know") from None
    if not isinstance(made, expected):
        raise TypeError(f"composed {type(made).__name__}, expected {expected.__name__}")
    return made


def from_saved(saved: dict[str, Any], group: str) -> Any:
    """A dataclass again from the plain values that a run folder keeps, by their `kind`.

    Raises UserError where the values do not fit the schema, as after a change of version.
    """
    kind = str(saved.get("kind"))
    schema = SCHEMAS[group].get(f"schema_{kind}")
    if schema is None:
        raise UserError(f"the run's {group}.kind={kind} is not known to this version of lmtool")
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), saved))
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"the run's {group} settings do not fit this version of lmtool: {reason}") from None
