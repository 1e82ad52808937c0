"""`lmtool eval`: run + store, or any text -> perplexity."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.config.verbs import EvalConfig
from lmtool.results import NOT_COMPARABLE, Evaluation, Rescored
from lmtool.runs.run import Run, fitted_note
from lmtool.session import Session
from lmtool.system.files import write_json

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus, Split
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.language_model import LanguageModel
    from lmtool.text_model import TextModel

SETTINGS = EvalConfig


def run(config: EvalConfig, session: Session) -> Evaluation | Rescored:
    """Score a split, a text or n-best lists with a finished run's model."""
    from lmtool.commands.eval_nbest import rescore
    from lmtool.evaluation.token_scores import SCORES_FILE
    from lmtool.runs.load import load_named
    from lmtool.runs.run import run_folder

    session.use_threads(config.threads)
    if config.text is None and config.nbest is None:
        evaluation = _of_split(config, Run.open(run_folder(config.run)), session)
    else:
        loaded = load_named(config.run, config.arpa, config.device, config.store_dir).reading(config.blank_lines)
        if config.nbest is not None:
            return rescore(config, loaded, session)
        evaluation = _of_text(config, loaded, session)
    result = evaluation.as_json()
    if evaluation.scores is not None:
        evaluation.scores.save(session.out / SCORES_FILE)
        result |= {"run": str(Path(evaluation.run).resolve())}
    write_json(session.out / "result.json", result)
    session.say(f"run {evaluation.run}\n{evaluation.lines()}")
    if not evaluation.normalised:
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    return evaluation


def _of_split(config: EvalConfig, finished: Run, session: Session) -> Evaluation:
    """Score a split of the run's data, and its cloze questions where it has some."""
    from lmtool.data.oov import oov_warning
    from lmtool.evaluation.cloze import only_questions
    from lmtool.runs.corpus import open_run_corpus
    from lmtool.runs.load import load_model

    name, run = config.split, str(finished.folder)
    with open_run_corpus(finished, config.store_dir, progress=session.progress) as corpus:
        model = load_model(finished, corpus.vocabulary, config.device)
        cloze = _questions(finished, model, corpus, name, session)
        if only_questions(corpus, name):
            return Evaluation(run, name, None, None, model.normalised, cloze, notes=session.notes)
        split = corpus.split(name)
        for warning in oov_warning(corpus, name):
            session.warn(warning)
    for note in fitted_note({run: finished.fitted_on.get(name, [])}, name):
        session.note(note)
    return _scored(config, model, split, corpus.vocabulary, session, run=run, name=name, cloze=cloze)


def _of_text(config: EvalConfig, loaded: TextModel, session: Session) -> Evaluation:
    """Score files, or standard input, tokenised as the run's data were; the run's store is not needed."""
    from lmtool.data.encode import split_of_text
    from lmtool.data.readers import DOCUMENT_BLOCK, read_blocks, read_stream
    from lmtool.data.text_files import text_files
    from lmtool.evaluation.score import require_across

    name, across = str(config.text), config.across_sentences
    documents = across and config.column is not None
    if across:
        require_across(loaded.model, loaded.vocabulary.eos, loaded.name)
    if name == "-":
        blocks = read_stream(iter([sys.stdin.buffer]), "standard input")
    else:
        at_once = 0 if documents else DOCUMENT_BLOCK
        blocks = read_blocks(*text_files(name, "text"), column=config.column, setting="column", at_once=at_once)
    split, skipped = split_of_text(blocks, name, loaded.form, across_sentences=across, documents=documents)
    if skipped and loaded.vocabulary.eos is not None:
        session.note(f"skipped {skipped:,} empty lines; blank_lines=sentence scores the </s> of each, as KenLM does")
    return _scored(config, loaded.model, split, loaded.vocabulary, session, run=loaded.name, name=name)


def _scored(
    config: EvalConfig,
    model: LanguageModel,
    split: Split,
    vocabulary: Vocabulary,
    session: Session,
    *,
    run: str,
    name: str,
    cloze: dict[str, float] | None = None,
) -> Evaluation:
    """Score text by the settings; prints its tokens where they ask for it."""
    from lmtool.ngram.models.ngram_model import evenly, quantised_notes

    evaluation = evaluate_split(
        model,
        split,
        vocabulary,
        session,
        run=run,
        name=name,
        accuracy=config.accuracy,
        unnormalised=config.unnormalised,
        cloze=cloze,
    )
    if evaluation.oov and (evaluation.log_probs[evaluation.oov_positions] == -math.inf).all():
        session.note(
            f"tokens out of vocabulary have probability 0 ({evaluation.oov:,} of {evaluation.tokens:,}): {run} "
            "has no <unk>, or no probability for it; the perplexity without OOVs is that of the others"
        )
    if split.tokens:
        for note in quantised_notes(model, split.windows(evenly(split.tokens), model.context_size)[0]):
            session.note(note)
    if config.detail:
        _print_detail(model, split, evaluation, session, sentences=vocabulary.eos is not None)
    return evaluation


def evaluate_split(
    model: LanguageModel,
    split: Split,
    vocabulary: Vocabulary,
    session: Session,
    *,
    run: str,
    name: str,
    accuracy: bool = False,
    unnormalised: bool = False,
    cloze: dict[str, float] | None = None,
) -> Evaluation:
    """Score text with a model. run, name: of the model and the text, for the report; cloze: the results of its
    questions; accuracy, unnormalised: as in EvalConfig.

    Raises UserError for unnormalised scores of a model that has none, and for the accuracy of one with a cache.
    """
    from lmtool.data.oov import text_warning
    from lmtool.evaluation.score import READ_ALONE, log_z, reads_across, report, score, split_accuracy
    from lmtool.evaluation.token_scores import TokenScores, tokens_of

    scores = score(model, split, progress=session.progress, unnormalised=unnormalised)
    right = split_accuracy(model, split, progress=session.progress) if accuracy else None
    normalised = model.normalised and not unnormalised
    across = reads_across(model, split)
    if across is False:
        session.note(READ_ALONE)
    if split.oov_words is not None:
        for warning in text_warning(name, len(split.oov_words), split.tokens, split.oov_words, vocabulary):
            session.warn(warning)
    return Evaluation(
        run,
        name,
        report(name, split, scores, cloze, right),
        TokenScores(scores.log_prob, tokens_of(split, vocabulary), name, normalised),
        normalised,
        cloze,
        log_z(model, split),
        across,
        session.notes,
    )


def _print_detail(
    model: LanguageModel, split: Split, evaluation: Evaluation, session: Session, *, sentences: bool
) -> None:
    """Print SRILM's lines; those of n-gram models name the length of the n-gram that was matched."""
    import numpy as np

    from lmtool.evaluation.srilm_debug import detail_lines
    from lmtool.ngram.models.ngram_model import NgramModel

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
    tokens, starts = evaluation.token_scores.tokens, split.as_stream(model.across_sentences).offsets
    for line in detail_lines(tokens, evaluation.log_probs, matched, starts, sentences=sentences, name=evaluation.split):
        session.say(line)


def _questions(run: Run, model: LanguageModel, corpus: Corpus, split: str, session: Session) -> dict[str, float] | None:
    from lmtool.evaluation.cloze import score_questions

    cloze = score_questions(model, corpus, split, session.out, session.say, session.note)
    return None if cloze is None else cloze | _local_cloze(run, corpus, split)


def _local_cloze(run: Run, corpus: Corpus, split: str) -> dict[str, float]:
    """The questions scored by the counts of their candidates alone, where the run's smoother does so."""
    if run.kind != "train" or not run.config.get("smoother"):
        return {}
    from lmtool.evaluation.cloze import cloze_report

    smoother, settings = run.settings("smoother"), run.settings("counts")
    if not smoother.scores_candidates_alone() or not run.settings("model").counts_words:
        return {}
    counts = settings.count(corpus, int(run.config["model"]["order"]), settings.storage(corpus))
    questions = corpus.cloze(split)
    assert questions is not None, "the caller has scored them"
    contexts = questions.contexts_matrix(counts.order - 1, corpus.vocabulary.bos)
    log_prob = smoother.cloze_log_prob(counts, contexts, questions.candidates)
    report = cloze_report(log_prob, questions.answers)
    return {"local_perplexity": report["perplexity"], "local_accuracy": report["accuracy"]}
