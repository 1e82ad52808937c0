"""`lmtool train`: store -> model, in a run folder."""

from __future__ import annotations

from lmtool.config.groups import CountModelConfig, EncoderConfig, neither
from lmtool.config.verbs import TrainConfig
from lmtool.errors import UserError
from lmtool.results import RateTest, TrainedRun
from lmtool.session import Session, processes_started

SETTINGS = TrainConfig


def run(config: TrainConfig, session: Session) -> TrainedRun | RateTest:
    """Train the configured model."""
    if isinstance(config.model, EncoderConfig):
        from lmtool.commands._train_neural import train_neural

        return train_neural(config, config.model, session)
    if not isinstance(config.model, CountModelConfig):
        raise neither(config.model)
    from lmtool.commands._train_ngram import train_ngram
    from lmtool.system.lock import folder_lock

    if processes_started() > 1:
        raise UserError(
            f"model={config.model.kind} is estimated by one process with several threads: run it without torchrun"
        )
    if config.resume is not None:
        raise UserError(f"resume={config.resume}: model={config.model.kind} is estimated in one pass; leave resume out")
    with folder_lock(session.out):
        return train_ngram(config, config.model, session)
