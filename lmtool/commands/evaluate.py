"""`lmtool eval`: run + store -> perplexity."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from lmtool.commands.surroundings import on_terminal, output_dir, use_threads
from lmtool.config import EvalConfig, typed
from lmtool.files import write_json


def run(composed: DictConfig) -> float | None:
    """Score a split with a finished run's model; returns the perplexity."""
    config = typed(composed, EvalConfig)
    from lmtool.build import load_model
    from lmtool.commands.reports import print_report
    from lmtool.commands.stores import corpus_of
    from lmtool.evaluation import cloze_log_prob, cloze_report, report, save_scores, score
    from lmtool.runs import Run, newest

    use_threads(config.threads)
    out = output_dir()
    finished = Run.open(Path(config.run) if config.run else newest())
    with corpus_of(finished, config.store_dir) as corpus:
        split = corpus.split(config.split)
        model = load_model(finished, corpus.vocabulary)
        scores = score(model, split, progress=on_terminal())
        questions = corpus.cloze(config.split)
        cloze = None
        if questions is not None and (questions.answers >= 0).all():
            cloze = cloze_report(cloze_log_prob(model, questions, corpus.vocabulary.bos), questions.answers)
        found = report(config.split, split, scores, cloze)
        save_scores(out / "scores.h5", scores, config.split, corpus.fingerprint)
    write_json(out / "result.json", found.as_json())
    print(f"run {finished.folder}")
    print_report(found)
    return found.perplexity
