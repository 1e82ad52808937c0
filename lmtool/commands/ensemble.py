"""`lmtool ensemble`: runs -> the perplexity of their mixture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lmtool.config.settings import plain_values
from lmtool.config.verbs import EnsembleConfig, FitOn
from lmtool.errors import UserError
from lmtool.results import NOT_COMPARABLE, Evaluation, MixedRun
from lmtool.runs.run import Run, all_fitted, fitted_by, fitted_note
from lmtool.session import Session
from lmtool.system.files import write_json

SETTINGS = EnsembleConfig


def run(config: EnsembleConfig, session: Session) -> MixedRun:
    """Mix finished runs with given or fitted weights, and score a split."""
    import numpy as np

    from lmtool.commands.mix_scores import mix_scores
    from lmtool.commands.mixture_members import is_run, require_one_unit
    from lmtool.evaluation.cloze import only_questions, score_questions
    from lmtool.evaluation.score import Scores, perplexity, reads_across, report, score
    from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores, tokens_of
    from lmtool.mixtures.fit import build_mixture, fit_mixture
    from lmtool.runs.corpus import open_run_corpus, save_words
    from lmtool.runs.load import load_model

    session.use_threads(config.threads)
    out = session.out
    require_one_unit(config.runs)
    if not all(is_run(name) or not Path(name).exists() for name in config.runs):
        evaluation, weights, member_perplexities, extra = mix_scores(config, session)
        mixed = MixedRun(out, config.runs, weights, member_perplexities, evaluation, session.notes)
        return _finished(mixed, extra, session)
    members = [Run.open(Path(folder)) for folder in config.runs]
    _require_one_store(members)
    with open_run_corpus(members[0], config.store_dir, progress=session.progress) as corpus:
        models = [load_model(member, corpus.vocabulary, config.device) for member in members]
        # Weights fitted on questions are not for text, where whole distributions would have to be mixed.
        questions_only = config.fit_on is FitOn.cloze or only_questions(corpus, config.split)
        text = None if questions_only else corpus.split(config.split)
        scored = {} if text is None else {id(model): score(model, text, progress=session.progress) for model in models}
        log_probs = [scored[id(model)].log_prob for model in models] if scored else []
        known = np.stack(log_probs) if log_probs and config.fit_split == config.split else None
        fitted = fit_mixture(config, models, corpus, known, session.say)
        if questions_only and corpus.cloze(config.split) is None:
            raise UserError(f"fit_on=cloze: {corpus.name} has no questions for split={config.split}")
        if "fit" in fitted.result and not fitted.result["fit"]["converged"]:
            session.note("the weights have not converged: there may be better ones")
        own = fitted_by(plain_values(config))
        found = {"the mixture": own.get(config.split, [])}
        for note in fitted_note(
            found | {str(m.folder): m.fitted_on.get(config.split, []) for m in members}, config.split
        ):
            session.note(note)
        mixture = build_mixture(models, fitted.weights, fitted.mixture, corpus.vocabulary)
        cloze = score_questions(mixture, corpus, config.split, out, session.say, session.note)
        evaluation = Evaluation(str(out), config.split, None, None, mixture.normalised, cloze)
        if text is not None:
            # The members' log-probabilities are known: only the mixing remains.
            start = time.perf_counter()
            log_prob = mixture.mix_scores(np.stack(log_probs), text)
            seconds = time.perf_counter() - start + sum(of_member.seconds for of_member in scored.values())
            evaluation.across_sentences = reads_across(mixture, text)
            evaluation.report = report(config.split, text, Scores(log_prob, seconds), cloze)
            evaluation.scores = TokenScores(
                log_prob, tokens_of(text, corpus.vocabulary), config.split, mixture.normalised
            )
            evaluation.scores.save(out / SCORES_FILE)
        save_words(corpus, out)
    Run(
        folder=out,
        kind="ensemble",
        config=plain_values(config) | {"data": members[0].config["data"]},
        store=members[0].store,
        store_fingerprint=members[0].store_fingerprint,
        vocabulary_fingerprint=members[0].vocabulary_fingerprint,
        members=tuple(str(member.folder.resolve()) for member in members),
        weights=tuple(float(weight) for weight in fitted.weights),
        mixture=fitted.mixture,
        fitted_on=all_fitted(own, *(member.fitted_on for member in members)),
    ).save()
    extra = {"method": config.method.value, **fitted.result}
    names = [str(member.folder) for member in members]
    perplexities: list[float | None] = [perplexity(log_prob) for log_prob in log_probs] or [None] * len(names)
    if config.cache is not None:
        names, perplexities = [*names, f"cache={config.cache.value}"], [*perplexities, None]
    if mixture.dynamic:
        extra["dynamic"] = True
        session.note("a dynamic model: it learns from the text as it reads it; compare it with dynamic models")
    mixed = MixedRun(
        out, names, fitted.weights.tolist(), perplexities, evaluation, session.notes, store_dir=config.store_dir
    )
    return _finished(mixed, extra, session)


def _require_one_store(members: list[Run]) -> None:
    for other_run in members[1:]:
        if other_run.store_fingerprint != members[0].store_fingerprint:
            raise UserError(
                f"{members[0].folder} and {other_run.folder} were trained on different stores: "
                "train them with the same data= settings and limit_vocabulary= to mix them"
            )


def _finished(mixed: MixedRun, extra: dict[str, Any], session: Session) -> MixedRun:
    """Write result.json; print the table of members and the report of the mixture."""
    from lmtool.evaluation.score import finite_or_null

    lines = zip(mixed.names, mixed.weights, mixed.perplexities, strict=True)
    members = [finite_or_null({"run": name, "weight": weight, "perplexity": value}) for name, weight, value in lines]
    evaluation = mixed.evaluation
    write_json(
        session.out / "result.json", evaluation.as_json() | extra | {"weights": mixed.weights, "members": members}
    )
    session.say(f"{mixed.table_text()}\n\n{evaluation.lines()}")
    if not evaluation.normalised:
        session.note(f"a member's scores do not sum to one, so that the mixture's do not: {NOT_COMPARABLE}")
    return mixed
