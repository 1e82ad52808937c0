"""Evaluations of a split of a run's data, and of any text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lmtool.commands._settings import EvaluationConfig
from lmtool.data.corpus import Corpus
from lmtool.data.oov import oov_warning, text_warning
from lmtool.data.readers import DOCUMENT_BLOCK, read_blocks, read_stream
from lmtool.data.split import Split
from lmtool.data.standard_input import INPUT, standard_input
from lmtool.data.text_files import text_files
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.errors import UserError
from lmtool.evaluation import metrics
from lmtool.evaluation.other_tools import Part, detail_lines
from lmtool.evaluation.token_scores import tokens_of
from lmtool.ngram.models.ngram_model import even_positions, quantized_notes
from lmtool.results.scores import Evaluation
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.load import load_model
from lmtool.runs.run import Run, fitted_note, fitted_on
from lmtool.session import Session
from lmtool.system.arrays import FloatArray
from lmtool.text_model import TextModel


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What an evaluation does besides scoring text. dynamic: settings of dynamic evaluation."""

    accuracy: bool = False
    unnormalized: bool = False
    detail: bool = False
    dynamic: EvaluationConfig | None = None

    @classmethod
    def of(cls, settings: EvaluationConfig) -> EvaluationOptions:
        dynamic = settings if settings.dynamic else None
        return cls(settings.accuracy, settings.unnormalized, settings.detail, dynamic)


def evaluate_run(settings: EvaluationConfig, finished: Run, session: Session) -> Evaluation:
    """Score a split of the run's data, and its cloze questions, if any."""
    name, run = settings.split, str(finished.folder)
    with open_run_corpus(finished, settings.store_dir, progress=session.progress) as corpus:
        model = load_model(finished, corpus.vocabulary, settings.device)
        cloze = metrics.score_questions(model, corpus, name, session.out, session.say, session.note)
        if cloze is not None:
            cloze |= _local_cloze(finished, corpus, name)
        if metrics.only_questions(corpus, name):
            session.note(*fitted_note({run: finished.fitted_on.get(name, [])}, name))
            return Evaluation(run, name, cloze=cloze, normalized=model.normalized)
        split = corpus.split(name)
        session.warn(*oov_warning(corpus, name))
    loaded = TextModel(model, TextForm(corpus.vocabulary), run)
    evaluation = evaluate_split(loaded, split, session, name, EvaluationOptions.of(settings), is_own_split=True)
    evaluation.cloze = cloze
    return evaluation


def _local_cloze(run: Run, corpus: Corpus, split: str) -> dict[str, float]:
    """Return the results of questions scored by the counts of their candidates alone, if the run's smoother does so."""
    if run.kind != "train" or not run.config.get("smoother"):
        return {}
    smoother, settings = run.settings("smoother"), run.settings("counts")
    if not smoother.scores_candidates_alone() or not run.settings("model").counts_words:
        return {}
    counts = settings.count(corpus, int(run.config["model"]["order"]), settings.storage(corpus))
    questions = corpus.cloze(split)
    assert questions is not None, "the caller has scored them"
    contexts = questions.contexts_matrix(counts.order - 1, corpus.vocabulary.bos)
    log_prob = smoother.cloze_log_prob(counts, contexts, questions.candidates)
    report = metrics.cloze_report(log_prob, questions.answers)
    return {"local_perplexity": report["perplexity"], "local_accuracy": report["accuracy"]}


def evaluate_text(settings: EvaluationConfig, loaded: TextModel, session: Session) -> Evaluation:
    """Score files or standard input, tokenized as the run's data were; the run's store is not needed."""
    name, across = str(settings.text), settings.across_sentences
    documents = across and settings.column is not None
    if across:
        metrics.require_across(loaded.model, loaded.vocabulary, loaded.name)
    printed = None
    if name == "-":
        blocks: Iterable[bytes] = read_stream(standard_input(by_line=settings.flush == "line"), INPUT)
        alone = loaded.vocabulary.sentences and not (across or loaded.dynamic or settings.dynamic)
        if settings.detail and alone and not settings.unnormalized:
            blocks, printed = _print_blocks(blocks, loaded, session)
    else:
        at_once = 0 if documents else DOCUMENT_BLOCK
        blocks = read_blocks(*text_files(name, "text"), column=settings.column, setting="column", at_once=at_once)
    split, skipped = split_of_text(blocks, name, loaded.form, across_sentences=across, documents=documents)
    if skipped and loaded.vocabulary.eos is not None:
        session.note(f"skipped {skipped:,} empty lines; blank_lines=sentence scores the </s> of each, as KenLM does")
    return evaluate_split(loaded, split, session, name, EvaluationOptions.of(settings), printed=printed)


def _print_blocks(
    blocks: Iterable[bytes], loaded: TextModel, session: Session
) -> tuple[list[bytes], tuple[FloatArray, float]]:
    """Print SRILM's lines of blocks of text as they arrive; return the blocks, and what was scored: the
    log-probabilities and the seconds it took.
    """
    read, scores, seconds = [], [], 0.0

    def parts() -> Iterator[Part]:
        nonlocal seconds
        for block in blocks:
            split, _ = split_of_text([block], "-", loaded.form)
            split = metrics.with_unk_as_oov(split, loaded.model, loaded.vocabulary)
            start = time.perf_counter()
            scores.append(loaded.model.score_text(split) if split.tokens else np.empty(0))
            seconds += time.perf_counter() - start
            read.append(block)
            yield _detail(loaded, split, scores[-1])

    for line in detail_lines(parts(), sentences=True, name="-"):
        session.say(line)
    return read, (np.concatenate(scores), seconds)


def _dynamic_scores(settings: EvaluationConfig, loaded: TextModel, split: Split, *, progress: bool) -> FloatArray:
    from lmtool.neural.dynamic import score_dynamically
    from lmtool.neural.model import NeuralModel

    if not isinstance(loaded.model, NeuralModel):
        raise UserError(
            f"dynamic=true: {loaded.name} is not a single network with weights to train; of a mixture, evaluate each "
            "network with dynamic=true, and mix these scores by lmtool ensemble"
        )
    train, segment, lr, decay = None, settings.dynamic_segment, settings.dynamic_lr, settings.dynamic_decay
    if settings.dynamic_rule == "rms":
        with open_run_corpus(Run.open(Path(loaded.name)), settings.store_dir, progress=progress) as corpus:
            train = corpus.split("train")
    return score_dynamically(loaded.model, split, train, segment=segment, lr=lr, decay=decay, progress=progress)


def evaluate_split(
    loaded: TextModel,
    split: Split,
    session: Session,
    name: str,
    options: EvaluationOptions,
    *,
    is_own_split: bool = False,
    printed: tuple[FloatArray, float] | None = None,
) -> Evaluation:
    """Score text with a model.

    name: of the text. is_own_split: whether it is a split of the run's data. printed: log p of the tokens and the
    seconds, if the detail is printed already.
    """
    model, vocabulary, run, progress = loaded.model, loaded.vocabulary, loaded.name, session.progress
    split = metrics.with_unk_as_oov(split, model, vocabulary)
    start = time.perf_counter()
    if printed is not None:
        log_prob = printed[0]
    elif options.dynamic is not None:
        log_prob = _dynamic_scores(options.dynamic, loaded, split, progress=progress)
    elif options.unnormalized:
        log_prob = model.score_tokens(split, 0, split.tokens, unnormalized=True, progress=progress)
    else:
        log_prob = model.score_text(split, progress=progress)
    seconds = time.perf_counter() - start if printed is None else printed[1]
    across = metrics.reads_across(model, split)
    if across is False:
        session.note(metrics.READ_ALONE)
    if split.oov_words is not None:
        session.warn(*text_warning(name, len(split.oov_words), split.tokens, split.oov_words, vocabulary))
    tokens = tokens_of(split, vocabulary)
    fitted = fitted_on(Path(run), name if is_own_split else None, tokens.fingerprint)
    session.note(*fitted_note({run: fitted}, name if is_own_split else f"text={name}"))
    if model.full_windows:
        session.note("all tokens are scored, those at the start of a sentence after <s>, which no example had")
    scores = metrics.scores_by(model, split, tokens, name, fitted, log_prob=log_prob)
    normalized = scores.normalized and not options.unnormalized
    learns = scores.dynamic or options.dynamic is not None
    evaluation = Evaluation.of(
        run,
        replace(scores, normalized=normalized, dynamic=learns),
        seconds=seconds,
        accuracy=metrics.split_accuracy(model, split, progress=progress) if options.accuracy else None,
        log_z=metrics.log_z(model, split) if options.dynamic is None else None,
        across_sentences=across,
    )
    if evaluation.dynamic:
        session.note(metrics.DYNAMIC)
    if model.reads_near:
        session.note(metrics.NEAR)
    if evaluation.oov and (log_prob[split.oov_positions] == -math.inf).all():
        session.note(
            f"tokens out of vocabulary have probability 0 ({evaluation.oov:,} of {evaluation.tokens:,}): {run} "
            "has no <unk>, or no probability for it; the perplexity without OOVs is that of the others"
        )
    if split.tokens:
        session.note(*quantized_notes(model, model.contexts_of(split, even_positions(split.tokens))[0]))
    if options.detail and printed is None:
        for line in detail_lines([_detail(loaded, split, log_prob)], sentences=vocabulary.sentences, name=name):
            session.say(line)
    return evaluation


def _detail(loaded: TextModel, split: Split, log_prob: FloatArray) -> Part:
    """Return a text for SRILM's lines; those of n-gram models name the length of the n-gram that was matched."""
    model = loaded.model
    matched = None if model.context_classes is None else model.map_text(model.matched_lengths, split)
    return tokens_of(split, loaded.vocabulary), log_prob, matched, split.as_stream(model.across_sentences).offsets
