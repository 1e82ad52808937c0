"""The settings class of each verb and of each of lmtool's own options, for the tests that walk them all."""

from __future__ import annotations

from lmtool.config import model_verbs, verbs
from lmtool.config import model_verbs as score_verb
from lmtool.config.options import HOMES, kinds, settings_class
from lmtool.config.training import TrainingConfig

VERB_SETTINGS: dict[str, type] = {
    "preprocess": verbs.PreprocessConfig,
    "train": verbs.TrainConfig,
    "eval": verbs.EvalConfig,
    "score": score_verb.ScoreConfig,
    "surprisal": model_verbs.SurprisalConfig,
    "pairs": model_verbs.PairsConfig,
    "ensemble": verbs.EnsembleConfig,
    "compare": verbs.CompareConfig,
    "convert": verbs.ConvertConfig,
    "tree": verbs.TreeVerbConfig,
    "predict": model_verbs.PredictConfig,
    "generate": model_verbs.GenerateConfig,
    "neighbors": model_verbs.NeighborsConfig,
    "export": model_verbs.ExportConfig,
    "push": model_verbs.PushConfig,
    "distil": model_verbs.DistilConfig,
    "verify": model_verbs.VerifyConfig,
    "report": model_verbs.ReportConfig,
}
# By group ("" for the verbs) and name of the verb or option.
SETTINGS: dict[str, dict[str, type]] = {
    "": VERB_SETTINGS,
    **{group: {kind: settings_class(group, kind) for kind in kinds(group)} for group in HOMES},
    "training": {"standard": TrainingConfig},
}
