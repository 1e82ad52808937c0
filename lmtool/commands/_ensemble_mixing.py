"""Mixtures of models, in a run, and of scores, token by token."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lmtool.commands._members import model_behind, open_members, scores_of
from lmtool.config.settings import settings_as_json
from lmtool.config.verbs import UNION, MixtureConfig
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.metrics import DYNAMIC, only_questions, perplexity, reads_across, score_questions, scores_by
from lmtool.evaluation.token_scores import SCORES_FILE, Tokens, tokens_of
from lmtool.language_model import LanguageModel
from lmtool.mixtures.fit import FittedMixture, build_mixture, fit_mixture, fit_record
from lmtool.mixtures.linear import MixedModel, fit_weights, mix
from lmtool.results import SUM_UNKNOWN, Evaluation, MixedRun
from lmtool.results.runs import Member
from lmtool.runs.corpus import save_words, tokenizer_of
from lmtool.runs.run import Run, fitted_by, fitted_note, merge_fitted, text_key
from lmtool.session import Session
from lmtool.system.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class _ScoredText:
    """A text of N tokens and its scores by M members. log_probs: `[M, N]`. seconds: time that the scoring took."""

    split: Split
    tokens: Tokens
    log_probs: FloatArray
    seconds: float


def mix_runs(settings: MixtureConfig, session: Session) -> MixedRun:
    members = {str(Path(name)): Run.open(Path(name)) for name in settings.runs if not Path(name).is_file()}
    with ExitStack() as stack:
        used = {settings.split, *([settings.fit_split] if settings.weights is None else [])}
        corpus, models = open_members(settings, used, stack, session)
        if settings.text is not None:
            settings = replace(settings, split=settings.text, fit_split=settings.text)
        if settings.over is not None and corpus.cloze(settings.split) is None:
            raise UserError(f"over={settings.over}: {corpus.name} has no questions for split={settings.split}")
        scored = _score_text(settings, models, corpus, session)
        fitted = _fit(settings, models, corpus, scored, session)
        own_fits, fits = _fits_on_text(settings, scored, members, session)
        mixture = build_mixture(models, fitted.weights, fitted.mixture, corpus.vocabulary)
        evaluation = _evaluate(settings, mixture, corpus, scored, fits, session)
        save_words(session.out, corpus.vocabulary, tokenizer_of(corpus))
    fitted_on = merge_fitted(own_fits, *(member.fitted_on for member in members.values()))
    _save_run(settings, fitted, list(members.values()), corpus.vocabulary, fitted_on, session)
    names = [str(Path(name)) for name in settings.runs]
    perplexities: list[float | None] = [None] * len(names)
    if scored is not None:
        perplexities = [perplexity(log_prob) for log_prob in scored.log_probs]
    if settings.cache is not None:
        names, perplexities = [*names, f"cache={settings.cache}"], [*perplexities, None]
    if evaluation.dynamic:
        session.note(DYNAMIC)
    weights, union = fitted.weights.tolist(), settings.vocabulary is not None
    return MixedRun(
        folder=session.out,
        store_dir=settings.store_dir,
        members=list(map(Member, names, weights, perplexities)),
        weights=weights,
        evaluation=evaluation,
        method=settings.method,
        over=settings.over,
        vocabulary=UNION if union else None,
        words=len(corpus.vocabulary) - 1 if union else None,
        **fitted.result,
    )


def _score_text(
    settings: MixtureConfig, models: list[LanguageModel], corpus: Corpus, session: Session
) -> _ScoredText | None:
    """Score the split by each member; None if only questions are scored."""
    # Weights fitted on questions are not for text, where whole distributions would have to be mixed.
    if settings.fit_on == "cloze" or only_questions(corpus, settings.split):
        return None
    split = corpus.split(settings.split)
    tokens = tokens_of(split, corpus.vocabulary)
    start = time.perf_counter()
    log_probs = [model.score_text(split, progress=session.progress) for model in models]
    return _ScoredText(split, tokens, np.stack(log_probs), time.perf_counter() - start)


def _fit(
    settings: MixtureConfig,
    models: list[LanguageModel],
    corpus: Corpus,
    scored: _ScoredText | None,
    session: Session,
) -> FittedMixture:
    on_fit_split = scored.log_probs if scored is not None and settings.fit_split == settings.split else None
    fitted = fit_mixture(settings, models, corpus, on_fit_split, session.say, progress=session.progress)
    if scored is None and corpus.cloze(settings.split) is None:
        raise UserError(f"fit_on=cloze: {corpus.name} has no questions for split={settings.split}")
    if "fit" in fitted.result and not fitted.result["fit"]["converged"]:
        session.note("the weights have not converged: there may be better ones")
    return fitted


def _fits_on_text(
    settings: MixtureConfig, scored: _ScoredText | None, members: dict[str, Run], session: Session
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return what the mixture fits, as in Run.fitted_on; and by model, with a note, what was fitted on the text."""
    own_fits, key, text_name = fitted_by(settings_as_json(settings)), settings.split, settings.split
    if settings.text is not None and scored is not None:
        key, text_name = text_key(scored.tokens.fingerprint), f"text={settings.text}"
        own_fits = {key: own_fits[settings.fit_split]} if own_fits else {}
    fits = {"the mixture": own_fits.get(key, [])}
    fits |= {name: member.fitted_on.get(key, []) for name, member in members.items()}
    session.note(*fitted_note(fits, text_name))
    return own_fits, fits


def _evaluate(
    settings: MixtureConfig,
    mixture: MixedModel,
    corpus: Corpus,
    scored: _ScoredText | None,
    fits: dict[str, list[str]],
    session: Session,
) -> Evaluation:
    """Evaluate the mixture on the questions and the text, and write its scores. fits: as of _fits_on_text."""
    out, split = str(session.out), settings.split
    cloze = score_questions(mixture, corpus, split, session.out, session.say, session.note)
    if scored is None:
        return Evaluation(out, split, cloze=cloze, normalized=mixture.normalized)
    start = time.perf_counter()
    log_prob = mixture.mix_scores(scored.log_probs, scored.split, progress=session.progress)
    seconds = scored.seconds + time.perf_counter() - start
    fitted = tuple(dict.fromkeys(what for parts in fits.values() for what in parts))
    scores = scores_by(mixture, scored.split, scored.tokens, split, fitted, log_prob=log_prob)
    scores.save(session.out / SCORES_FILE)
    across = reads_across(mixture, scored.split)
    return Evaluation.of(out, scores, seconds=seconds, cloze=cloze, across_sentences=across)


def _save_run(
    settings: MixtureConfig,
    fitted: FittedMixture,
    members: list[Run],
    vocabulary: Vocabulary,
    fitted_on: dict[str, list[str]],
    session: Session,
) -> None:
    first = members[0] if members else None
    stored = first if settings.text is None else None  # the run whose store is the text
    Run(
        folder=session.out,
        kind="ensemble",
        config=settings_as_json(settings) | {"data": None if first is None else first.config["data"]},
        store="" if stored is None else stored.store,
        store_fingerprint="" if stored is None else stored.store_fingerprint,
        vocabulary_fingerprint=vocabulary.fingerprint(),
        members=tuple(str(Path(name).resolve()) for name in settings.runs),
        weights=tuple(float(weight) for weight in fitted.weights),
        mixture=fitted.mixture | ({} if settings.vocabulary is None else {"vocabulary": UNION}),
        fitted_on=fitted_on,
        started_in=os.getcwd() if first is None else first.started_in,
    ).save()


def mix_scores(settings: MixtureConfig, session: Session) -> MixedRun:
    if settings.method != "linear" or settings.cache is not None:
        raise UserError("runs= names scores without a model, which mix only with method=linear and cache=null")
    if settings.weights is None and settings.fit_split != settings.split:
        raise UserError(
            f"fit_split={settings.fit_split}: runs= names scores without a model, of one text alone; give weights=, or "
            f"fit them on it with fit_split={settings.split}"
        )
    start = time.perf_counter()
    scores, _ = scores_of(settings, session)
    log_prob = np.stack([each.log_prob for each in scores])
    models, record = [model_behind(Path(name)) for name in settings.runs], None
    if settings.weights is not None:
        weights, own = np.array(settings.weights), []
    else:
        fit = fit_weights(log_prob)
        record = fit_record(settings, fit) | {"split": scores[0].split}
        weights, own = fit.weights, ["weights"]
        session.say(f"EM on the text itself: {fit.iterations} steps, within {fit.gap:.1e} nats of the optimum")
    by_name = list(zip(settings.runs, scores, strict=True))
    fits = {"the mixture": own} | {name: list(each.fitted) for name, each in by_name}
    session.note(*fitted_note(fits, scores[0].split))
    mixed = scores[0].mix_with(mix(log_prob, weights), scores[1:], own)
    mixed.save(session.out / SCORES_FILE)
    one_model = f"; if all are n-gram models, lmtool convert 'runs=[{session.out}]' makes one of them"
    session.note(
        "a mixture of scores is not a run; its scores.h5 can be compared and mixed" + (one_model if all(models) else "")
    )
    session.note(*[f"{name}: {DYNAMIC}" for name, each in by_name if each.dynamic])
    session.note(*[f"{name}: {SUM_UNKNOWN}" for name, each in by_name if each.normalized is None])
    evaluation = Evaluation.of(str(session.out), mixed, seconds=time.perf_counter() - start)
    members = [
        Member(name, weight, perplexity(each.log_prob), each.normalized is None)
        for (name, each), weight in zip(by_name, weights.tolist(), strict=True)
    ]
    return MixedRun(
        folder=session.out,
        members=members,
        weights=weights.tolist(),
        evaluation=evaluation,
        fit=record,
        models=models,
    )
