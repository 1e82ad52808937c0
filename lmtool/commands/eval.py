"""`lmtool eval`: run + store, or any text -> perplexity."""

from __future__ import annotations

from lmtool.commands._settings import EvaluationConfig as Settings
from lmtool.results.base import NOT_COMPARABLE
from lmtool.results.scores import Evaluation
from lmtool.session import Session


def run(settings: Settings, session: Session) -> Evaluation:
    """Score a split or a text with a finished run's model."""
    from lmtool.commands._eval_scores import evaluate_run, evaluate_text
    from lmtool.evaluation.token_scores import SCORES_FILE
    from lmtool.runs.load import load_named
    from lmtool.runs.run import Run, run_folder

    if settings.text is None:
        evaluation = evaluate_run(settings, Run.open(run_folder(settings.run)), session)
    else:
        loaded = load_named(settings.run, settings.arpa, settings.device)
        evaluation = evaluate_text(settings, loaded.reading(settings.blank_lines), session)
    evaluation.rank_by(settings.metric)
    if evaluation.scores is not None:
        evaluation.scores.save(session.out / SCORES_FILE)
    session.finish(evaluation, f"run {evaluation.run}\n{evaluation.table_text()}")
    if evaluation.normalized is False:
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    return evaluation
