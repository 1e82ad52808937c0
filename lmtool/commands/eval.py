"""`lmtool eval`: run + store, any text or n-best lists -> perplexity, or the lists in a new order."""

from __future__ import annotations

from lmtool.commands._settings import EvaluationConfig
from lmtool.config.rules import is_number, require
from lmtool.results import NOT_COMPARABLE, Evaluation, Rescored
from lmtool.session import Session


class Settings(EvaluationConfig):
    """Settings of `lmtool eval`, and what they allow."""

    def __post_init__(self) -> None:
        EvaluationConfig.__post_init__(self)
        penalty, can_tune = self.nbest_word_penalty, self.nbest_reference is not None
        known = penalty is None or is_number(penalty, -1e9, 1e9) or (penalty == "tuned" and can_tune)
        require(known, "nbest_word_penalty", penalty, "null, a number, or with nbest_reference=FILE tuned")


def run(settings: Settings, session: Session) -> Evaluation | Rescored:
    """Score a split, a text or n-best lists with a finished run's model."""
    from lmtool.commands._eval_scores import evaluate_run, evaluate_text, rescore
    from lmtool.evaluation.token_scores import SCORES_FILE
    from lmtool.runs.load import load_named
    from lmtool.runs.run import Run, run_folder

    if settings.text is None and settings.nbest is None:
        evaluation = evaluate_run(settings, Run.open(run_folder(settings.run)), session)
    else:
        loaded = load_named(settings.run, settings.arpa, settings.device)
        loaded = loaded.reading(settings.blank_lines)
        if settings.nbest is not None:
            return rescore(settings, settings.nbest, loaded, session)
        evaluation = evaluate_text(settings, loaded, session)
    if evaluation.scores is not None:
        evaluation.scores.save(session.out / SCORES_FILE)
    session.finish(evaluation, f"run {evaluation.run}\n{evaluation.table_text()}")
    if evaluation.normalized is False:
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    return evaluation
