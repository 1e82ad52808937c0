"""`lmtool ensemble` where a member has scores but no model: a linear mixture, token by token."""

from __future__ import annotations

import time

from lmtool.commands.mixture_members import scores_of
from lmtool.config.verbs import EnsembleConfig, MixMethod
from lmtool.errors import UserError
from lmtool.evaluation.score import Scores, perplexity, report
from lmtool.results import Evaluation
from lmtool.runs.run import fitted_note
from lmtool.session import Session


def mix_scores(
    config: EnsembleConfig, session: Session
) -> tuple[Evaluation, list[float], list[float | None], dict[str, object]]:
    """Mix runs and scores of the same tokens, and save the mixed scores. Returns the mixture's evaluation, the weights,
    the members' perplexities, and further entries of result.json.

    Raises UserError for what scores alone cannot do: other methods, caches, weights from another split.
    """
    import numpy as np

    from lmtool.data.corpus import Split
    from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores
    from lmtool.mixtures.fit import fit_record
    from lmtool.mixtures.linear import fit_weights, mix

    if config.method is not MixMethod.linear or config.cache is not None:
        raise UserError("runs= names scores without a model, which mix only with method=linear and cache=null")
    if config.weights is None and config.fit_split != config.split:
        raise UserError(
            f"fit_split={config.fit_split}: runs= names scores without a model, of one text alone; give weights=, or "
            f"fit them on it with fit_split={config.split}"
        )
    start = time.perf_counter()
    members, tokens = scores_of(config.runs, config.split, config.store_dir, config.device, progress=session.progress)
    log_prob = np.stack([member.log_prob for member in members])
    weights, extra = np.array(config.weights), {}
    if config.weights is None:
        fit = fit_weights(log_prob)
        weights = fit.weights
        extra = {"fit": fit_record(config, fit.iterations, fit.gap)}
        session.say(f"EM on the text itself: {fit.iterations} steps, within {fit.gap:.1e} nats of the optimum")
    mixed = mix(log_prob, weights)
    name, own = members[0].split, ["weights"] if config.weights is None else []
    for note in fitted_note({"the mixture": own} | {member.name: member.fitted for member in members}, name):
        session.note(note)
    scores = TokenScores(mixed, tokens, name, all(member.normalised for member in members))
    scores.save(session.out / SCORES_FILE)
    text = Split(tokens.ids, tokens.offsets, tokens.oov_positions, 0, len(tokens.words) - 1)
    session.note(
        "some members have scores but no model, so that this mixture is not a run; its scores.h5 can be "
        "compared and mixed"
    )
    mixed_report = report(name, text, Scores(mixed, time.perf_counter() - start))
    evaluation = Evaluation(str(session.out), name, mixed_report, scores, scores.normalised)
    return evaluation, weights.tolist(), [perplexity(member.log_prob) for member in members], dict(extra)
