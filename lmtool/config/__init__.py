"""The types and rules of every setting; the values stand in conf/*.yaml alone.

Each class here is the schema of one YAML file or group option. `register()` hands them to Hydra, so that
a misspelt key or a value of the wrong type fails while the configuration is composed, before any work
starts. `typed()` turns a composed configuration into real nested dataclasses; below the command layer
there are only these, never a DictConfig.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lmtool.config.data import (
    DataConfig,
    DownloadConfig,
    PydocData,
    SplitConfig,
    SplitUnit,
    SyntheticData,
    TextData,
    ToyData,
    Unit,
    VocabularyConfig,
)
from lmtool.config.models import (
    Activation,
    CbowModel,
    EncoderModel,
    LblModel,
    ModelConfig,
    NgramModelConfig,
    NplmModel,
)
from lmtool.config.outputs import (
    AdaptiveOutput,
    ClassesOutput,
    HierarchicalOutput,
    NceOutput,
    NodeForm,
    OutputConfig,
    Precision,
    SampledOutput,
    SoftmaxOutput,
)
from lmtool.config.rules import require
from lmtool.config.smoothers import (
    TUNED,
    AbsoluteConfig,
    CountsConfig,
    GoodTuringConfig,
    JelinekMercerConfig,
    KneserNeyConfig,
    LaplaceConfig,
    MleConfig,
    ModifiedKneserNeyConfig,
    SmootherConfig,
    StupidBackoffConfig,
    WittenBellConfig,
)
from lmtool.config.training import AdagradOptim, AdamOptim, OptimConfig, Schedule, SgdOptim, TrainingConfig
from lmtool.config.trees import (
    BalancedTree,
    BrownTree,
    ClassesTree,
    ClustersTree,
    Division,
    FileTree,
    FrequencyTree,
    HuffmanTree,
    Method,
    RandomTree,
    Representation,
    TreeConfig,
    WordnetTree,
)
from lmtool.errors import UserError

__all__ = [
    "SCHEMAS",
    "TUNED",
    "AbsoluteConfig",
    "Activation",
    "AdagradOptim",
    "AdamOptim",
    "AdaptiveOutput",
    "BalancedTree",
    "BrownTree",
    "CbowModel",
    "ClassesOutput",
    "ClassesTree",
    "ClustersTree",
    "ConvertConfig",
    "CountsConfig",
    "DataConfig",
    "Division",
    "DownloadConfig",
    "EncoderModel",
    "EnsembleConfig",
    "EvalConfig",
    "FileTree",
    "FrequencyTree",
    "GoodTuringConfig",
    "HierarchicalOutput",
    "HuffmanTree",
    "JelinekMercerConfig",
    "KneserNeyConfig",
    "LaplaceConfig",
    "LblModel",
    "Method",
    "MleConfig",
    "ModelConfig",
    "ModifiedKneserNeyConfig",
    "NceOutput",
    "NgramModelConfig",
    "NodeForm",
    "NplmModel",
    "OptimConfig",
    "OutputConfig",
    "Precision",
    "PreprocessConfig",
    "PydocData",
    "RandomTree",
    "Representation",
    "SampledOutput",
    "Schedule",
    "SgdOptim",
    "SmootherConfig",
    "SoftmaxOutput",
    "SplitConfig",
    "SplitUnit",
    "StupidBackoffConfig",
    "SyntheticData",
    "TextData",
    "ToyData",
    "TrainConfig",
    "TrainingConfig",
    "TreeConfig",
    "TreeVerbConfig",
    "Unit",
    "VerbConfig",
    "VocabularyConfig",
    "WittenBellConfig",
    "WordnetTree",
    "from_saved",
    "register",
    "typed",
]


@dataclass(slots=True)
class VerbConfig:
    """What every verb has."""

    store_dir: str = MISSING
    threads: int | None = MISSING

    def __post_init__(self) -> None:
        require(self.threads is None or self.threads >= 1, "threads", self.threads, "1 or more, or null")


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
    counts: CountsConfig | None = None
    prune: list[int] | None = MISSING
    prune_entropy: float | None = MISSING
    output: OutputConfig | None = None
    tree: TreeConfig | None = None
    optim: OptimConfig | None = None
    training: TrainingConfig | None = None
    seed: int = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        cutoffs = self.prune or []
        rule = "cut-offs of 0 or more, one an order, none below the one before it, and 0 for order 1"
        require(cutoffs == sorted(cutoffs) and not any(cutoffs[:1]), "prune", self.prune, rule)
        threshold = self.prune_entropy
        require(threshold is None or 0 < threshold < 1, "prune_entropy", threshold, "between 0 and 1, or null")
        if not isinstance(self.model, NgramModelConfig):
            for name, value in (("prune", self.prune), ("prune_entropy", threshold)):
                require(value is None, name, value, f"null: model={self.model.kind} is not pruned")


@dataclass(slots=True)
class ConvertConfig(VerbConfig):
    """`lmtool convert`"""

    run: str | None = MISSING
    arpa: str | None = MISSING
    to: str | None = MISSING
    data: DataConfig = MISSING


@dataclass(slots=True)
class TreeVerbConfig(VerbConfig):
    """`lmtool tree`"""

    data: DataConfig = MISSING
    tree: TreeConfig = MISSING
    words: list[str] | None = MISSING
    levels: int = MISSING
    to: str | None = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require(1 <= self.levels <= 8, "levels", self.levels, "from 1 to 8")


@dataclass(slots=True)
class EvalConfig(VerbConfig):
    """`lmtool eval`"""

    run: str | None = MISSING
    split: str = MISSING
    unnormalised: bool = MISSING


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
        "schema_convert": ConvertConfig,
        "schema_tree": TreeVerbConfig,
    },
    "data": {
        "schema_text": TextData,
        "schema_pydoc": PydocData,
        "schema_synthetic": SyntheticData,
        "schema_toy": ToyData,
    },
    "model": {
        "schema_ngram": NgramModelConfig,
        "schema_nplm": NplmModel,
        "schema_lbl": LblModel,
        "schema_cbow": CbowModel,
    },
    "output": {
        "schema_softmax": SoftmaxOutput,
        "schema_hierarchical": HierarchicalOutput,
        "schema_nce": NceOutput,
        "schema_sampled": SampledOutput,
        "schema_adaptive": AdaptiveOutput,
        "schema_classes": ClassesOutput,
    },
    "tree": {
        "schema_balanced": BalancedTree,
        "schema_random": RandomTree,
        "schema_frequency": FrequencyTree,
        "schema_huffman": HuffmanTree,
        "schema_classes": ClassesTree,
        "schema_brown": BrownTree,
        "schema_clusters": ClustersTree,
        "schema_wordnet": WordnetTree,
        "schema_file": FileTree,
    },
    "smoother": {
        "schema_mle": MleConfig,
        "schema_laplace": LaplaceConfig,
        "schema_jelinek_mercer": JelinekMercerConfig,
        "schema_witten_bell": WittenBellConfig,
        "schema_good_turing": GoodTuringConfig,
        "schema_absolute": AbsoluteConfig,
        "schema_kneser_ney": KneserNeyConfig,
        "schema_modified_kneser_ney": ModifiedKneserNeyConfig,
        "schema_stupid_backoff": StupidBackoffConfig,
    },
    "counts": {"schema_counts": CountsConfig},
    "optim": {"schema_sgd": SgdOptim, "schema_adagrad": AdagradOptim, "schema_adam": AdamOptim},
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
