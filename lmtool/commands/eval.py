"""`lmtool eval`: run + store, or any text -> perplexity."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmtool.config.settings import typed
from lmtool.config.verbs import EvalConfig
from lmtool.session import on_terminal, output_dir, use_threads
from lmtool.system.files import write_json

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus, Split
    from lmtool.language_model import FloatArray, LanguageModel
    from lmtool.runs.run import Run


def run(composed: DictConfig) -> float | None:
    """Score a split with a finished run's model; returns the perplexity."""
    config = typed(composed, EvalConfig)
    from lmtool.commands.eval_nbest import rescore
    from lmtool.evaluation.cloze import only_questions
    from lmtool.evaluation.printing import print_report
    from lmtool.evaluation.score import log_z, report, score, split_accuracy
    from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores, tokens_of
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run, run_folder
    from lmtool.runs.store import corpus_of

    use_threads(config.threads)
    out = output_dir()
    finished = Run.open(run_folder(config.run))
    with corpus_of(finished, config.store_dir, progress=on_terminal()) as corpus:
        model = load_model(finished, corpus.vocabulary, config.device)
        if config.nbest is not None:
            return rescore(config, finished, model, corpus, out)
        if config.text is not None:
            name, split, cloze = config.text, _read_text(config.text, finished, corpus), None
        else:
            name, cloze = config.split, _questions(finished, model, corpus, config.split, out)
            if only_questions(corpus, name):
                write_json(out / "result.json", {"split": name, "cloze": cloze})
                return None
            split = corpus.split(name)
        scores = score(model, split, progress=on_terminal(), unnormalised=config.unnormalised)
        spread = log_z(model, split)
        share = split_accuracy(model, split, progress=on_terminal()) if config.accuracy else None
        text_report = report(name, split, scores, cloze, share)
        normalised = model.normalised and not config.unnormalised
        TokenScores(scores.log_prob, tokens_of(split, corpus.vocabulary), name, normalised).save(out / SCORES_FILE)
        if config.detail:
            _print_detail(model, split, scores.log_prob, corpus, name)
    extra = {"run": str(finished.folder.resolve()), "normalised": normalised} | ({"log_z": spread} if spread else {})
    write_json(out / "result.json", text_report.as_json() | extra)
    print(f"run {finished.folder}")
    print_report(text_report)
    if spread:
        mean = f"{spread['mean']:>12.4f} +- {spread['std']:.4f} ({spread['contexts']:,} contexts)"
        print(f"{'log Z of the scores':<20} {mean}")
    if not normalised:
        print("note: these scores do not sum to one: do not compare this perplexity with others")
    return text_report.perplexity


def _read_text(path: str, run: Run, corpus: Corpus) -> Split:
    """A text file, or standard input, tokenised as the run's data were."""
    from lmtool.data.readers import read_blocks, read_stream
    from lmtool.data.text_split import split_of_text

    blocks = read_stream(iter([sys.stdin.buffer]), "standard input") if path == "-" else read_blocks(path)
    return split_of_text(blocks, path, run.settings("data"), corpus.vocabulary)


def _print_detail(model: LanguageModel, split: Split, log_prob: FloatArray, corpus: Corpus, name: str) -> None:
    """Print SRILM's lines; those of n-gram models name the length of the n-gram that was matched."""
    import numpy as np

    from lmtool.evaluation.srilm_debug import detail_lines
    from lmtool.evaluation.token_scores import tokens_of
    from lmtool.ngram.model import NgramModel

    matched = None
    if isinstance(model, NgramModel):
        matched = np.concatenate(
            [
                model.matched_lengths(
                    split.contexts(first, min(first + 65536, split.tokens), model.context_size),
                    split.ids[first : first + 65536].astype(np.int64),
                )
                for first in range(0, split.tokens, 65536)
            ]
        )
    tokens = tokens_of(split, corpus.vocabulary)
    for line in detail_lines(tokens, log_prob, matched, sentences=corpus.sentences, name=name):
        print(line)


def _questions(run: Run, model: LanguageModel, corpus: Corpus, split: str, out: Path) -> dict[str, float] | None:
    from lmtool.evaluation.cloze import cloze_log_prob, score_questions

    cloze = score_questions(
        corpus, split, out, lambda questions: cloze_log_prob(model, questions, corpus.vocabulary.bos)
    )
    return None if cloze is None else cloze | _local_cloze(run, corpus, split)


def _local_cloze(run: Run, corpus: Corpus, split: str) -> dict[str, float]:
    """The questions scored by the counts of their candidates alone, where the run's smoother does so."""
    if run.kind != "train" or not run.config.get("smoother"):
        return {}
    from lmtool.evaluation.cloze import cloze_report

    smoother, settings = run.settings("smoother"), run.settings("counts")
    if not smoother.scores_candidates_alone():
        return {}
    counts = settings.count(corpus, int(run.config["model"]["order"]), settings.storage(corpus))
    questions = corpus.cloze(split)
    assert questions is not None, "the caller has scored them"
    contexts = questions.contexts_matrix(counts.order - 1, corpus.vocabulary.bos)
    log_prob = smoother.cloze_log_prob(counts, contexts, questions.candidates)
    report = cloze_report(log_prob, questions.answers)
    return {"local_perplexity": report["perplexity"], "local_accuracy": report["accuracy"]}
