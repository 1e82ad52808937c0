"""`lmtool eval`: run + store, or any text -> perplexity."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmtool.config import CountsConfig, EvalConfig, from_saved, typed
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
    from lmtool.evaluation.token_scores import SCORES_FILE, Kept, tokens_of
    from lmtool.runs.build import load_model
    from lmtool.runs.run import Run, newest
    from lmtool.runs.store import corpus_of

    use_threads(config.threads)
    out = output_dir()
    finished = Run.open(Path(config.run) if config.run else newest())
    with corpus_of(finished, config.store_dir) as corpus:
        model = load_model(finished, corpus.vocabulary, config.device)
        if config.nbest is not None:
            return rescore(config, finished, model, corpus, out)
        if config.text is not None:
            name, split, asked = config.text, _read_text(config.text, finished, corpus), None
        else:
            name, asked = config.split, _questions(finished, model, corpus, config.split, out)
            if only_questions(corpus, name):
                write_json(out / "result.json", {"split": name, "cloze": asked})
                return None
            split = corpus.split(name)
        scores = score(model, split, progress=on_terminal(), unnormalised=config.unnormalised)
        spread = log_z(model, split)
        share = split_accuracy(model, split, progress=on_terminal()) if config.accuracy else None
        found = report(name, split, scores, asked, share)
        normalised = getattr(model, "normalised", True) and not config.unnormalised
        Kept(scores.log_prob, tokens_of(split, corpus.vocabulary), name, normalised).save(out / SCORES_FILE)
        if config.detail:
            _print_detail(model, split, scores.log_prob, corpus, name)
    extra = {"run": str(finished.folder.resolve()), "normalised": normalised} | ({"log_z": spread} if spread else {})
    write_json(out / "result.json", found.as_json() | extra)
    print(f"run {finished.folder}")
    print_report(found)
    if spread:
        said = f"{spread['mean']:>12.4f} +- {spread['std']:.4f} ({spread['contexts']:,} contexts)"
        print(f"{'log Z of the scores':<20} {said}")
    if not normalised:
        print("note: these are scores that do not sum to one; what is called perplexity compares with nothing")
    return found.perplexity


def _read_text(path: str, run: Run, corpus: Corpus) -> Split:
    """A text file, or standard input, cut into words as the run's data were."""
    from lmtool.data.readers import read_blocks, read_stream
    from lmtool.data.text_split import split_of_text

    blocks = read_stream(iter([sys.stdin.buffer]), "standard input") if path == "-" else read_blocks(path)
    return split_of_text(blocks, path, from_saved(run.config["data"], "data"), corpus.vocabulary)


def _print_detail(model: LanguageModel, split: Split, log_prob: FloatArray, corpus: Corpus, name: str) -> None:
    """SRILM's lines, with the lengths of what an n-gram model found."""
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
    from lmtool.evaluation.cloze import score_questions
    from lmtool.evaluation.score import cloze_log_prob

    asked = score_questions(corpus, split, out, lambda cloze: cloze_log_prob(model, cloze, corpus.vocabulary.bos))
    return None if asked is None else asked | _local_cloze(run, corpus, split)


def _local_cloze(run: Run, corpus: Corpus, split: str) -> dict[str, float]:
    """Witten-Bell with the counts of the candidates alone, where the run's smoother asks for it."""
    saved = run.config.get("smoother")
    if run.kind != "train" or not saved or not saved.get("local_cloze"):
        return {}
    from lmtool.evaluation.score import cloze_report
    from lmtool.ngram.cloze_witten_bell import local_witten_bell
    from lmtool.runs.build import counts_of, storage_of

    settings = CountsConfig(**run.config["counts"])
    counts = counts_of(corpus, int(run.config["model"]["order"]), settings, storage_of(settings, corpus))
    questions = corpus.cloze(split)
    assert questions is not None, "asked for after they were found"
    contexts = questions.contexts_matrix(counts.order - 1, corpus.vocabulary.bos)
    found = cloze_report(local_witten_bell(counts, contexts, questions.candidates), questions.answers)
    return {"local_perplexity": found["perplexity"], "local_accuracy": found["accuracy"]}
