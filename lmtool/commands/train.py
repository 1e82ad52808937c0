"""`lmtool train`: store -> model, in a run folder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lmtool import results
from lmtool.commands._settings import CountTrainingConfig, NetworkTrainingConfig
from lmtool.config.data import Unit
from lmtool.config.groups import CountModelConfig, EncoderConfig, ModelConfig, is_tied, unknown_model_kind
from lmtool.config.rules import MISSING, require, require_whole
from lmtool.config.verbs import PRUNE_METHODS, VerbConfig
from lmtool.errors import UserError
from lmtool.session import Session, processes_started


@dataclass(slots=True)
class Settings(CountTrainingConfig, NetworkTrainingConfig):
    makes: ClassVar[str] = "run"

    model: ModelConfig = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        limits = self.lr_range_limits
        rising = len(limits) == 2 and 0 < limits[0] < limits[1] < math.inf
        require(rising, "lr_range_limits", limits, "two numbers above 0, the lower first, e.g. 1e-5,10")
        self._require_pruning()
        if not isinstance(self.model, CountModelConfig):
            rule = f"null: model={self.model.kind} is trained in float32; lmtool convert makes its weights smaller"
            require(self.quantize is None, "quantize", self.quantize, rule)
        elif self.lr_range:
            raise UserError(f"lr_range=true: model={self.model.kind} has no learning rate; choose a neural model")
        tuned = self.smoother is not None and self.smoother.tuning_split() == "valid"
        if (tuned or not isinstance(self.model, CountModelConfig)) and not self.data.has_valid():
            remedy = "give it one, or cut valid and test from data.train, e.g. by data.split.train=0.8"
            raise UserError(f"data.valid has no file, and this training reads it: {remedy}")
        if isinstance(self.model, EncoderConfig) and self.output is not None:
            is_tied(self.model, self.output)  # raises UserError if they cannot be tied
        training = self.training
        if training is None or self.lr_range or self.resume is not None:
            return  # no schedule is used, or it was started with another budget
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


def run(settings: Settings, session: Session) -> results.TrainedRun | results.RateTest:
    """Train the configured model."""
    if isinstance(settings.model, EncoderConfig):
        from lmtool.commands._train_neural import train_neural

        return train_neural(settings, settings.model, session)
    if not isinstance(settings.model, CountModelConfig):
        raise unknown_model_kind(settings.model)
    from lmtool.commands._train_ngram import train_ngram
    from lmtool.system.lock import folder_lock

    model = settings.model
    if processes_started() > 1:
        raise UserError(f"model={model.kind} is estimated by one process with several threads: run it without torchrun")
    if settings.resume is not None and session.if_run_exists == "resume":
        raise UserError(f"{session.out} holds the training of a network, not of {model.kind}: choose another out=")
    if settings.resume is not None:
        raise UserError(f"resume={settings.resume}: model={model.kind} is estimated in one pass; leave resume out")
    with folder_lock(session.out):
        return train_ngram(settings, model, session)
