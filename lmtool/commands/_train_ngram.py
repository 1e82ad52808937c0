"""`lmtool train` of a count-based model: counts -> back-off table."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lmtool.commands._settings import CountTrainingConfig
from lmtool.config.groups import CountModelConfig, cloze_split
from lmtool.config.settings import settings_as_json
from lmtool.data.choose_vocabulary import read_limit_words
from lmtool.data.cloze import Cloze
from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import limit_words
from lmtool.data.oov import report_splits
from lmtool.data.split import Split
from lmtool.data.text_rules import TextRules
from lmtool.errors import UserError
from lmtool.evaluation.metrics import cloze_results, perplexity, require_questions
from lmtool.language_model import LanguageModel
from lmtool.results.base import CLOZE_METRIC, NOT_COMPARABLE, read_summary, result_from_json, sizes_text
from lmtool.results.runs import TrainedRun
from lmtool.runs.corpus import prepare_store, require_splits, save_trained
from lmtool.runs.resume import require_same
from lmtool.runs.run import REMEDY, Run
from lmtool.session import Session
from lmtool.system.files import read_json
from lmtool.system.schemas import RESULT, TRAINED

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.smoothers.base import Smoother
    from lmtool.ngram.tables.backoff import BackoffTable
    from lmtool.ngram.tables.storage import Storage

MAX_TRAIN = 10_000_000  # tokens of train up to which it is scored, in about a second


def train_ngram(settings: CountTrainingConfig, model: CountModelConfig, session: Session) -> TrainedRun:
    out = session.out
    finished = session.if_run_exists == "resume" and (out / "run.json").is_file()
    if not finished:
        session.require_new()
    command_start = time.perf_counter()
    assert settings.counts is not None, "each count-based conf/model/*.yaml chooses one"
    prepared = prepare_store(settings.data, settings.counts, settings.store_dir, progress=session.progress)
    with Corpus(prepared) as whole:
        require_splits(whole, "train")
        corpus, listed = whole, None
        if settings.limit_vocabulary is not None:
            corpus = limit_words(
                whole, read_limit_words(settings.limit_vocabulary, TextRules.of(settings.data).word_rules)
            )
            listed = ~corpus.oov
        if finished:
            return _finished(settings, corpus, session)
        report_splits(corpus, session.say, session.note, session.warn)
        trained = _estimate(settings, model, whole, corpus, listed, command_start, session)
        trained.rank_by(settings.metric)
        session.save_result(trained)
        save_trained(out, {"settings": settings_as_json(settings)}, session.choices, corpus)
    session.say(trained.line())
    return trained


def _finished(settings: CountTrainingConfig, corpus: Corpus, session: Session) -> TrainedRun:
    before, values = Run.open(session.out), settings_as_json(settings)
    path = session.out / "result.json"
    if before.kind != "train" or "options" not in read_json(path, REMEDY, RESULT):
        raise UserError(
            f"{session.out} was mixed, converted or distilled, not trained: choose another folder with out="
        )
    require_same({key: before.config.get(key) for key in values}, values, session.out)
    method = before.config.get("prune_method")  # without effect on networks, so that require_same does not compare it
    if settings.prune_to is not None and method != settings.prune_method:
        given = f"prune_method={settings.prune_method}"
        raise UserError(f"{given}: the training in {session.out} was started with {method}")
    if before.store_fingerprint != corpus.fingerprint:
        raise UserError(
            f"{session.out} was trained on a different store from {corpus.path}: choose another folder with out="
        )
    saved = read_json(path, REMEDY, TRAINED)
    cloze = read_summary(session.out, REMEDY).cloze or None  # with inf where the file has null
    return result_from_json(TrainedRun, saved, folder=session.out, store_dir=settings.store_dir, cloze=cloze)


def _estimate(
    settings: CountTrainingConfig,
    model: CountModelConfig,
    whole: Corpus,
    corpus: Corpus,
    listed: Any,
    command_start: float,
    session: Session,
) -> TrainedRun:
    """Choose the units, count, tune, estimate, prune, quantize, and score valid.

    listed: with limit_vocabulary, whether each word of `whole` is one of `corpus`, bool `[V]`. command_start: by
    time.perf_counter.
    """
    from lmtool.ngram.estimation.estimate import estimate
    from lmtool.ngram.models.ngram_model import quantized_notes

    assert settings.smoother is not None and settings.counts is not None, "each conf/model/*.yaml of counts has both"
    if settings.metric == CLOZE_METRIC:
        require_questions(corpus, "valid", f"metric={CLOZE_METRIC}")
    tuning_split = settings.smoother.tuning_split()
    asked, tune_on = cloze_split(tuning_split or ""), f"smoother.tune_on={tuning_split}"
    if asked is not None and not model.counts_words:
        raise UserError(f"{tune_on}: the n-grams of model={model.kind} are not of words: tune on text, e.g. valid")
    questions = None if asked is None else require_questions(whole, asked, tune_on)
    if tuning_split is not None and questions is None:
        corpus.require_split(tuning_split, "smoother.tune_on")
    cutoffs = _cutoffs(settings.prune_counts or None, model.order)
    storage = settings.counts.storage(whole)
    if storage.note is not None:
        session.note(storage.note)
    training_start = time.perf_counter()
    units = model.units(whole)
    for line in units.about:
        session.say(line)
    counted_corpus = units.corpus
    smoother = settings.smoother.build(model.order, counted_corpus.vocabulary)
    counting_start = time.perf_counter()
    counts = _count(settings, counted_corpus, model.order, model.full_windows, smoother, storage)
    counting_end = time.perf_counter()
    tuning: dict[str, Any] = {}
    if tuning_split is not None:
        held_out = questions or counted_corpus.split(tuning_split)
        tuning = _tune(counts, smoother, held_out, tuning_split, storage, session)
    fit = tuning_split is None
    table = estimate(counts, smoother, cutoffs=cutoffs, word_mask=listed, fit=fit, storage=storage)
    units = units if listed is None else model.units(corpus)
    if settings.prune_to is not None or settings.prune_entropy is not None:
        table = _prune(settings, table, units.corpus.vocabulary, counts, smoother, storage, session)
    if settings.quantize is not None:
        table = table.quantize(settings.quantize, storage)
    training_end = time.perf_counter()
    session.note(*table.notes)
    session.begin_writing()
    units.save(table, session.out)
    language_model = units.model(table)
    if not isinstance(language_model, LanguageModel):
        name = type(language_model).__name__
        raise UserError(f"model={model.kind}: {name} must be a subclass of lmtool.language_model.LanguageModel")
    session.note(*quantized_notes(language_model))
    sizes = list(table.sizes)
    session.say(sizes_text(sizes))
    windows = counts.distinct_windows
    total = int(counts.count[-1][:].sum()) if model.full_windows else corpus.tokens("train")
    session.say(f"windows of {model.order} tokens in train: {total:,}, distinct {windows:,}")
    if storage.memory is not None:  # by the file just written, so that the temporary ones go
        del table, language_model
        language_model = model.load(session.out, corpus.vocabulary)
    if not language_model.normalized:
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    examples = corpus.tokens("train")
    return TrainedRun(
        folder=session.out,
        store_dir=settings.store_dir,
        valid_perplexity=_perplexity_on("valid", language_model, corpus, storage),
        train_perplexity=_perplexity_on("train", language_model, corpus, storage),
        cloze=cloze_results(language_model, corpus, "valid"),
        parameters=sum(sizes),
        ngrams=sizes,
        distinct_windows=windows,
        examples=examples,
        examples_per_second=examples / (training_end - training_start),
        epochs=1,
        seconds=time.perf_counter() - command_start,
        options=session.choices,
        normalized=language_model.normalized,
        counting_seconds=counting_end - counting_start,
        estimation_seconds=training_end - counting_end,
        discounts=smoother.values_by_name() if smoother.bounds else None,
        **tuning,
    )


def _cutoffs(given: list[int] | None, order: int) -> list[int] | None:
    """Return a cut-off for each order; the last one given holds for all higher orders."""
    if given is None:
        return None
    if len(given) > order:
        raise UserError(f"prune_counts={given}: {len(given)} cut-offs, but model.order={order}")
    return given + given[-1:] * (order - len(given))


def _count(
    settings: CountTrainingConfig, corpus: Corpus, order: int, full_windows: bool, smoother: Smoother, storage: Storage
) -> Counts:
    """Count the n-grams of train, also by source if the smoother needs it."""
    from lmtool.ngram.counting.counts import count_sources

    assert settings.counts is not None and settings.smoother is not None, "_estimate has checked both"
    counts = settings.counts.count(corpus, order, storage)
    if full_windows:
        if smoother.by_source:
            raise UserError(f"smoother={settings.smoother.kind}: counts sources with <s>; leave model.full_windows out")
        return counts.full_windows()
    if not smoother.by_source:
        return counts
    if corpus.train_counted_externally:
        raise UserError(
            f"smoother={settings.smoother.kind}: {corpus.path} has no text of train to count by sources: "
            "leave counts= out"
        )
    return replace(counts, sources=count_sources(counts, corpus.split("train"), corpus.sources))


def _tune(
    counts: Counts, smoother: Smoother, held_out: Split | Cloze, name: str, storage: Storage, session: Session
) -> dict[str, Any]:
    """Tune the smoother on text or questions; return the entries of a TrainedRun on the parameters that were found."""
    from lmtool.ngram.estimation.tuning import fit_and_tune

    tuned = fit_and_tune(counts, smoother, held_out, storage)
    session.say(f"tuned on {name}: perplexity {tuned.before:.4f} -> {tuned.after:.4f}")
    found = smoother.values_by_name()
    for row in found:
        values = ", ".join(f"{key} = {value:.6g}" for key, value in row.items() if key != "order")
        session.say(f"  order {row['order']}: {values}")
    if smoother.weights is None:
        return {"tuned_parameters": found}
    weights = dict(zip(counts.by_source().names, smoother.weights.tolist(), strict=True))
    for source, weight in weights.items():
        session.say(f"  weight of {source}: {weight:.6g}")
    return {"tuned_parameters": found, "source_weights": weights}


def _prune(
    settings: CountTrainingConfig,
    table: BackoffTable,
    vocabulary: Vocabulary,
    counts: Counts,
    smoother: Smoother,
    storage: Storage,
    session: Session,
) -> BackoffTable:
    """Prune a table by prune_entropy, or to the size prune_to by the method of the settings."""
    from lmtool.commands._ngram_runs import prune
    from lmtool.ngram.pruning.gain import prune_to_size_by_gain

    by_gain = None
    if settings.prune_method != "entropy":
        by_gain = partial(prune_to_size_by_gain, counts, smoother, table, storage=storage)
    return prune(table, vocabulary, session, to=settings.prune_to, entropy=settings.prune_entropy, by_gain=by_gain)


def _perplexity_on(split: str, model: LanguageModel, corpus: Corpus, storage: Storage) -> float:
    """Return the perplexity on a split; nan without it, and on a train split of more than MAX_TRAIN tokens."""
    if split not in corpus.splits or (split == "train" and corpus.tokens(split) > MAX_TRAIN):
        return math.nan
    limit = None if storage.memory is None else storage.limit
    return perplexity(model.score_text(corpus.split(split), memory_limit=limit))
