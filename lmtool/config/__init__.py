"""The types and rules of every setting; the values stand in conf/*.yaml alone.

Each class here is the schema of one YAML file or group option. `register()` hands them to Hydra, so that
a misspelt key or a value of the wrong type fails while the configuration is composed, before any work
starts. `typed()` turns a composed configuration into real nested dataclasses; below the command layer
there are only these, never a DictConfig.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
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
from lmtool.config.model_verbs import (
    ExportConfig,
    GenerateConfig,
    Likeness,
    MapKind,
    NeighborsConfig,
    Oov,
    PredictConfig,
    ReportConfig,
    Sampling,
    Vectors,
    What,
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
from lmtool.config.schedules import (
    ConstantSchedule,
    CosineSchedule,
    InverseSchedule,
    LinearSchedule,
    PlateauSchedule,
    ScheduleConfig,
    StepsSchedule,
)
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
from lmtool.config.training import (
    AdagradOptim,
    AdamOptim,
    AdamwOptim,
    Arithmetic,
    OptimConfig,
    SgdOptim,
    TrainingConfig,
)
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
from lmtool.config.verbs import (
    CacheKind,
    CompareConfig,
    ConvertConfig,
    EnsembleConfig,
    EvalConfig,
    FitOn,
    MixMethod,
    PreprocessConfig,
    TrainConfig,
    TreeVerbConfig,
    VerbConfig,
)
from lmtool.errors import UserError

__all__ = [
    "SCHEMAS",
    "TUNED",
    "AbsoluteConfig",
    "Activation",
    "AdagradOptim",
    "AdamOptim",
    "AdamwOptim",
    "AdaptiveOutput",
    "Arithmetic",
    "BalancedTree",
    "BrownTree",
    "CacheKind",
    "CbowModel",
    "ClassesOutput",
    "ClassesTree",
    "ClustersTree",
    "CompareConfig",
    "ConstantSchedule",
    "ConvertConfig",
    "CosineSchedule",
    "CountsConfig",
    "DataConfig",
    "Division",
    "DownloadConfig",
    "EncoderModel",
    "EnsembleConfig",
    "EvalConfig",
    "ExportConfig",
    "FileTree",
    "FitOn",
    "FrequencyTree",
    "GenerateConfig",
    "GoodTuringConfig",
    "HierarchicalOutput",
    "HuffmanTree",
    "InverseSchedule",
    "JelinekMercerConfig",
    "KneserNeyConfig",
    "LaplaceConfig",
    "LblModel",
    "Likeness",
    "LinearSchedule",
    "MapKind",
    "Method",
    "MixMethod",
    "MleConfig",
    "ModelConfig",
    "ModifiedKneserNeyConfig",
    "NceOutput",
    "NeighborsConfig",
    "NgramModelConfig",
    "NodeForm",
    "NplmModel",
    "Oov",
    "OptimConfig",
    "OutputConfig",
    "PlateauSchedule",
    "Precision",
    "PredictConfig",
    "PreprocessConfig",
    "PydocData",
    "RandomTree",
    "ReportConfig",
    "Representation",
    "SampledOutput",
    "Sampling",
    "ScheduleConfig",
    "SgdOptim",
    "SmootherConfig",
    "SoftmaxOutput",
    "SplitConfig",
    "SplitUnit",
    "StepsSchedule",
    "StupidBackoffConfig",
    "SyntheticData",
    "TextData",
    "ToyData",
    "TrainConfig",
    "TrainingConfig",
    "TreeConfig",
    "TreeVerbConfig",
    "Unit",
    "Vectors",
    "VerbConfig",
    "VocabularyConfig",
    "What",
    "WittenBellConfig",
    "WordnetTree",
    "from_saved",
    "register",
    "typed",
]


SCHEMAS: dict[str, dict[str, type]] = {
    "": {
        "schema_preprocess": PreprocessConfig,
        "schema_train": TrainConfig,
        "schema_eval": EvalConfig,
        "schema_ensemble": EnsembleConfig,
        "schema_compare": CompareConfig,
        "schema_convert": ConvertConfig,
        "schema_tree": TreeVerbConfig,
        "schema_predict": PredictConfig,
        "schema_generate": GenerateConfig,
        "schema_neighbors": NeighborsConfig,
        "schema_export": ExportConfig,
        "schema_report": ReportConfig,
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
    "optim": {
        "schema_sgd": SgdOptim,
        "schema_adagrad": AdagradOptim,
        "schema_adam": AdamOptim,
        "schema_adamw": AdamwOptim,
    },
    "schedule": {
        "schema_constant": ConstantSchedule,
        "schema_linear": LinearSchedule,
        "schema_cosine": CosineSchedule,
        "schema_steps": StepsSchedule,
        "schema_inverse": InverseSchedule,
        "schema_plateau": PlateauSchedule,
    },
    "training": {"schema_training": TrainingConfig},
}


@cache
def register() -> None:
    """Hand the schemas to Hydra's store, each to be named first in the defaults list of its YAML file; once."""
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
