"""`lmtool eval`: run + store -> perplexity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmtool.commands.surroundings import on_terminal, output_dir, use_threads
from lmtool.config import CountsConfig, EvalConfig, typed
from lmtool.files import write_json

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.runs import Run


def run(composed: DictConfig) -> float | None:
    """Score a split with a finished run's model; returns the perplexity."""
    config = typed(composed, EvalConfig)
    from lmtool.build import load_model
    from lmtool.commands.questions import only_questions, score_questions
    from lmtool.commands.reports import print_report
    from lmtool.commands.stores import corpus_of
    from lmtool.evaluation import cloze_log_prob, log_z, report, save_scores, score
    from lmtool.runs import Run, newest

    use_threads(config.threads)
    out = output_dir()
    finished = Run.open(Path(config.run) if config.run else newest())
    with corpus_of(finished, config.store_dir) as corpus:
        model = load_model(finished, corpus.vocabulary, config.device)
        asked = score_questions(
            corpus, config.split, out, lambda cloze: cloze_log_prob(model, cloze, corpus.vocabulary.bos)
        )
        if asked is not None:
            asked |= _local_cloze(finished, corpus, config.split)
        if only_questions(corpus, config.split):
            write_json(out / "result.json", {"split": config.split, "cloze": asked})
            return None
        split = corpus.split(config.split)
        scores = score(model, split, progress=on_terminal(), unnormalised=config.unnormalised)
        spread = log_z(model, split)
        found = report(config.split, split, scores, asked)
        save_scores(out / "scores.h5", scores, config.split, corpus.fingerprint)
    normalised = getattr(model, "normalised", True) and not config.unnormalised
    extra = {"normalised": normalised} | ({"log_z": spread} if spread else {})
    write_json(out / "result.json", found.as_json() | extra)
    print(f"run {finished.folder}")
    print_report(found)
    if spread:
        said = f"{spread['mean']:>12.4f} +- {spread['std']:.4f} ({spread['contexts']:,} contexts)"
        print(f"{'log Z of the scores':<20} {said}")
    if not normalised:
        print("note: these are scores that do not sum to one; what is called perplexity compares with nothing")
    return found.perplexity


def _local_cloze(run: Run, corpus: Corpus, split: str) -> dict[str, float]:
    """Witten-Bell with the counts of the candidates alone, where the run's smoother asks for it."""
    saved = run.config.get("smoother")
    if run.kind != "train" or not saved or not saved.get("local_cloze"):
        return {}
    from lmtool.build import counts_of, storage_of
    from lmtool.evaluation import cloze_report
    from lmtool.ngram.local import local_witten_bell

    settings = CountsConfig(**run.config["counts"])
    counts = counts_of(corpus, int(run.config["model"]["order"]), settings, storage_of(settings, corpus))
    questions = corpus.cloze(split)
    assert questions is not None, "asked for after they were found"
    contexts = questions.contexts_matrix(counts.order - 1, corpus.vocabulary.bos)
    found = cloze_report(local_witten_bell(counts, contexts, questions.candidates), questions.answers)
    return {"local_perplexity": found["perplexity"], "local_accuracy": found["accuracy"]}
