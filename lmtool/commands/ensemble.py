"""`lmtool ensemble`: runs -> the perplexity of their mixture; saved scores of the same text -> their mixture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from lmtool import results
from lmtool.config.rules import require, setting
from lmtool.config.verbs import MixtureConfig, read_weights
from lmtool.errors import UserError
from lmtool.session import Session


@dataclass(slots=True)
class Settings(MixtureConfig):
    makes: ClassVar[str] = "files"

    text: str | None = setting(excludes=("fit_on=cloze", "over=candidates"), why="it has no questions")

    def __post_init__(self) -> None:
        MixtureConfig.__post_init__(self)
        members = len(self.runs) + (self.cache is not None)
        if members < 2:
            raise UserError(f"runs={self.runs}: name two runs or more to mix, e.g. runs=A,B, or one and a cache")
        fits = self.fit_on == "text" or (self.method != "classes" and self.cache is None)
        require(fits, "fit_on", self.fit_on, "text with method=classes and with a cache")
        if self.weights is not None:
            what = f"{len(self.runs)} runs and a cache" if self.cache else f"{len(self.runs)} runs"
            self.weights = read_weights(self.weights, members, what)


def run(settings: Settings, session: Session) -> results.MixedRun:
    """Mix finished runs with given or fitted weights, and score a split.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> other = lmtool.train({"kind": "ngram", "order": 1}, corpus, smoother="witten_bell")
    >>> mixed = lmtool.ensemble([run, other], weights=[0.5, 0.5])
    >>> mixed.weights
    [0.5, 0.5]
    """
    from lmtool.commands._ensemble_mixing import mix_runs, mix_scores
    from lmtool.commands._members import is_run, require_one_unit, shares
    from lmtool.evaluation.token_scores import SCORES_FILE
    from lmtool.runs.run import Run

    out, read = session.out.resolve(), [Path(name).resolve() for name in settings.runs]
    if out in read or out / SCORES_FILE in read or ((out / "run.json").is_file() and Run.open(out).kind != "ensemble"):
        raise UserError(f"{session.out} is a run, which the mixture would replace: choose another out=PATH")
    require_one_unit(settings.runs, settings.text)
    if settings.method == "linear":
        settings = replace(settings, weights=shares(settings.weights, session))
    by_models = settings.text is not None or all(is_run(name) or not Path(name).exists() for name in settings.runs)
    mixed = mix_runs(settings, session) if by_models else mix_scores(settings, session)
    mixed.evaluation.rank_by(settings.metric)
    session.finish(mixed, f"{mixed.table_text()}\n\n{mixed.evaluation.table_text()}")
    if mixed.evaluation.normalized is False:
        session.note(f"a member's scores do not sum to one, so that the mixture's do not: {results.NOT_COMPARABLE}")
    return mixed
