"""Mixtures of models, in a run, and of scores, token by token."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from lmtool.commands._members import model_behind, open_members, scores_of
from lmtool.config.settings import settings_as_json
from lmtool.config.verbs import UNION, MixtureConfig
from lmtool.errors import UserError
from lmtool.evaluation.metrics import DYNAMIC, only_questions, perplexity, reads_across, score_questions, scores_by
from lmtool.evaluation.token_scores import SCORES_FILE, tokens_of
from lmtool.mixtures.fit import build_mixture, fit_mixture, fit_record
from lmtool.mixtures.linear import fit_weights, mix
from lmtool.results import SUM_UNKNOWN, Evaluation, MixedRun
from lmtool.results.runs import Member
from lmtool.runs.corpus import save_words, tokenizer_of
from lmtool.runs.run import Run, fitted_by, fitted_note, merge_fitted, text_key
from lmtool.session import Session


def mix_runs(settings: MixtureConfig, session: Session) -> MixedRun:
    out = session.out
    members = {str(Path(name)): Run.open(Path(name)) for name in settings.runs if not Path(name).is_file()}
    first = next(iter(members.values()), None)
    with ExitStack() as stack:
        used = {settings.split, *([settings.fit_split] if settings.weights is None else [])}
        corpus, models = open_members(settings, used, stack, session)
        if settings.text is not None:
            settings = replace(settings, split=settings.text, fit_split=settings.text)
        # Weights fitted on questions are not for text, where whole distributions would have to be mixed.
        questions_only = settings.fit_on == "cloze" or only_questions(corpus, settings.split)
        text = None if questions_only else corpus.split(settings.split)
        tokens = None if text is None else tokens_of(text, corpus.vocabulary)
        start = time.perf_counter()
        log_probs = [] if text is None else [model.score_text(text, progress=session.progress) for model in models]
        seconds = time.perf_counter() - start
        on_fit_split = np.stack(log_probs) if log_probs and settings.fit_split == settings.split else None
        fitted = fit_mixture(settings, models, corpus, on_fit_split, session.say, progress=session.progress)
        if questions_only and corpus.cloze(settings.split) is None:
            raise UserError(f"fit_on=cloze: {corpus.name} has no questions for split={settings.split}")
        if "fit" in fitted.result and not fitted.result["fit"]["converged"]:
            session.note("the weights have not converged: there may be better ones")
        own, on, said = fitted_by(settings_as_json(settings)), settings.split, settings.split
        if settings.text is not None and tokens is not None:
            on, said = text_key(tokens.fingerprint), f"text={settings.text}"
            own = {on: own[settings.fit_split]} if own else {}
        found = {"the mixture": own.get(on, [])}
        found |= {name: member.fitted_on.get(on, []) for name, member in members.items()}
        session.note(*fitted_note(found, said))
        mixture = build_mixture(models, fitted.weights, fitted.mixture, corpus.vocabulary)
        cloze = score_questions(mixture, corpus, settings.split, out, session.say, session.note)
        if text is None or tokens is None:
            evaluation = Evaluation(str(out), settings.split, cloze=cloze, normalized=mixture.normalized)
        else:
            start = time.perf_counter()
            log_prob = mixture.mix_scores(np.stack(log_probs), text, progress=session.progress)
            seconds += time.perf_counter() - start
            known = tuple(dict.fromkeys(what for fits in found.values() for what in fits))
            scores = scores_by(mixture, text, tokens, settings.split, known, log_prob=log_prob)
            across = reads_across(mixture, text)
            evaluation = Evaluation.of(str(out), scores, seconds=seconds, cloze=cloze, across_sentences=across)
            scores.save(out / SCORES_FILE)
        save_words(out, corpus.vocabulary, tokenizer_of(corpus))
    Run(
        folder=out,
        kind="ensemble",
        config=settings_as_json(settings) | {"data": None if first is None else first.config["data"]},
        store="" if first is None or settings.text is not None else first.store,
        store_fingerprint="" if first is None or settings.text is not None else first.store_fingerprint,
        vocabulary_fingerprint=corpus.vocabulary.fingerprint(),
        members=tuple(str(Path(name).resolve()) for name in settings.runs),
        weights=tuple(float(weight) for weight in fitted.weights),
        mixture=fitted.mixture | ({} if settings.vocabulary is None else {"vocabulary": UNION}),
        fitted_on=merge_fitted(own, *(member.fitted_on for member in members.values())),
        started_in=os.getcwd() if first is None else first.started_in,
    ).save()
    names = [str(Path(name)) for name in settings.runs]
    perplexities: list[float | None] = [perplexity(log_prob) for log_prob in log_probs] or [None] * len(names)
    if settings.cache is not None:
        names, perplexities = [*names, f"cache={settings.cache}"], [*perplexities, None]
    if evaluation.dynamic:
        session.note(DYNAMIC)
    weights, union = fitted.weights.tolist(), settings.vocabulary is not None
    return MixedRun(
        folder=out,
        store_dir=settings.store_dir,
        members=list(map(Member, names, weights, perplexities)),
        weights=weights,
        evaluation=evaluation,
        method=settings.method,
        vocabulary=UNION if union else None,
        words=len(corpus.vocabulary) - 1 if union else None,
        **fitted.result,
    )


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
    of_scores = members, weights.tolist(), evaluation
    return MixedRun(*of_scores, folder=session.out, fit=record, models=models)
