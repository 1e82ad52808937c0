"""`lmtool train`: store -> model, in a run folder."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmtool.config import EncoderModel, NgramModelConfig, TrainConfig, typed
from lmtool.errors import UserError
from lmtool.runs.lock import held
from lmtool.session import (
    on_terminal,
    output_dir,
    plain,
    processes_started,
    require_new,
    use_threads,
)
from lmtool.system.files import write_json

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus


def run(composed: DictConfig) -> float | None:
    """Train the configured model; returns its perplexity on valid, which sweeps compare."""
    config = typed(composed, TrainConfig)
    if isinstance(config.model, EncoderModel):
        from lmtool.commands.train_neural import run_neural

        return run_neural(config, config.model, plain(composed))
    if not isinstance(config.model, NgramModelConfig):
        raise UserError(f"model={config.model.kind} is not known to this version of lmtool")
    if processes_started() > 1:
        raise UserError("model=ngram is estimated by one process with several threads: run it without torchrun")
    if config.resume is not None:
        raise UserError(f"resume={config.resume}: model=ngram is estimated in one go; train it again")
    out = output_dir()
    with held(out):
        return _run_ngram(config, config.model, composed, out)


def _run_ngram(config: TrainConfig, model: NgramModelConfig, composed: DictConfig, out: Path) -> float:
    from lmtool.commands.train_ngram import train_ngram
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import prepare
    from lmtool.evaluation.score import finite_or_null

    require_new(out)
    use_threads(config.threads)
    start = time.perf_counter()
    prepared = prepare(config.data, Path(config.store_dir), progress=on_terminal())
    with Corpus.open(prepared.path) as corpus:
        require_splits(corpus)
        result = train_ngram(config, model, corpus, out)
        result["seconds"] = time.perf_counter() - start
        write_json(out / "result.json", finite_or_null(result))
        save_run(out, plain(composed), corpus)
    say_result(result, out)
    found: float = result["valid_perplexity"]
    return found


def require_splits(corpus: Corpus) -> None:
    """Raises UserError for a store without train or valid."""
    for name in ("train", "valid"):
        if name not in corpus.splits:
            raise UserError(f"{corpus.path} has no {name} split: give data.{name} a file and preprocess again")


def save_run(out: Path, settings: dict[str, object], corpus: Corpus) -> None:
    """Write the vocabulary and run.json, which makes the folder a run."""
    from lmtool.runs.run import Run
    from lmtool.runs.vocabulary_file import VOCABULARY, save_vocabulary

    save_vocabulary(corpus.vocabulary, out / VOCABULARY)
    Run(
        folder=out,
        kind="train",
        config=settings,
        store=str(corpus.path.resolve()),
        store_fingerprint=corpus.fingerprint,
        vocabulary_fingerprint=corpus.vocabulary.fingerprint(),
    ).save()


def say_result(result: dict[str, float], out: Path) -> None:
    """The last line of a training."""
    found = result["valid_perplexity"]
    said = f"{found:.4f}" if math.isfinite(found) else "infinite"
    print(f"valid perplexity {said}, {result['parameters']:,} parameters, {result['seconds']:.1f} s; run={out}")
