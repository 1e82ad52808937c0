"""`lmtool ensemble`: runs -> the perplexity of their mixture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from lmtool.config.settings import plain_values, typed
from lmtool.config.verbs import EnsembleConfig, FitOn
from lmtool.errors import UserError
from lmtool.session import on_terminal, output_dir, use_threads
from lmtool.system.files import write_json
from lmtool.system.tables import Cell, text_table

if TYPE_CHECKING:
    from lmtool.evaluation.score import Report
    from lmtool.runs.run import Run


def run(composed: DictConfig) -> float | None:
    """Mix finished runs with given or fitted weights, score a split; returns the mixture's perplexity."""
    config = typed(composed, EnsembleConfig)
    import numpy as np

    from lmtool.commands.mix_scores import mix_scores
    from lmtool.commands.mixture_members import is_run
    from lmtool.evaluation.cloze import cloze_log_prob, only_questions, score_questions
    from lmtool.evaluation.score import perplexity, report, score
    from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores, tokens_of
    from lmtool.mixtures.build import build_mixture
    from lmtool.mixtures.fit import fit_mixture
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run
    from lmtool.runs.store import corpus_of
    from lmtool.runs.vocabulary_file import VOCABULARY, save_vocabulary

    use_threads(config.threads)
    out = output_dir()
    if not all(is_run(name) or not Path(name).exists() for name in config.runs):
        mixed_report, weights, member_perplexities, extra = mix_scores(config, out)
        return _report(out, config.runs, weights, member_perplexities, mixed_report.as_json() | extra, mixed_report)
    members = [Run.open(Path(folder)) for folder in config.runs]
    _require_one_store(members)
    with corpus_of(members[0], config.store_dir, progress=on_terminal()) as corpus:
        models = [load_model(member, corpus.vocabulary, config.device) for member in members]
        # Weights fitted on questions are not for text, where whole distributions would have to be mixed.
        questions_only = config.fit_on is FitOn.cloze or only_questions(corpus, config.split)
        text = None if questions_only else corpus.split(config.split)
        scored = {} if text is None else {id(model): score(model, text, progress=on_terminal()) for model in models}
        log_probs = [scored[id(model)].log_prob for model in models] if scored else []
        known = np.stack(log_probs) if log_probs and config.fit_split == config.split else None
        fitted = fit_mixture(config, models, corpus, known)
        if questions_only and corpus.cloze(config.split) is None:
            raise UserError(f"fit_on=cloze: {corpus.name} has no questions for split={config.split}")
        if config.fit_split == config.split and "fit" in fitted.result:
            print(f"note: the weights were fitted on {config.split} itself; split=test scores held-out text")
        mixture = build_mixture(models, fitted.weights, fitted.mixture, corpus.vocabulary)
        cloze = score_questions(
            corpus, config.split, out, lambda questions: cloze_log_prob(mixture, questions, corpus.vocabulary.bos)
        )
        text_report = None
        if text is not None:
            # The members' log-probabilities are known: only the mixing remains.
            mixed = score(mixture, text, progress=on_terminal(), scored=lambda model, _: scored[id(model)].log_prob)
            seconds = mixed.seconds + sum(scores.seconds for scores in scored.values())
            text_report = report(config.split, text, type(mixed)(mixed.log_prob, seconds), cloze)
            scores = TokenScores(mixed.log_prob, tokens_of(text, corpus.vocabulary), config.split, mixture.normalised)
            scores.save(out / SCORES_FILE)
        save_vocabulary(corpus.vocabulary, out / VOCABULARY)
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
    ).save()
    result: dict[str, Any] = {"split": config.split, "cloze": cloze} if text_report is None else text_report.as_json()
    result |= {"method": config.method.value, **fitted.result}
    names = [str(member.folder) for member in members]
    perplexities: list[float | None] = [perplexity(log_prob) for log_prob in log_probs] or [None] * len(names)
    if config.cache is not None:
        names, perplexities = [*names, f"cache={config.cache.value}"], [*perplexities, None]
    if mixture.dynamic:
        result["dynamic"] = True
        print("note: a dynamic model: it learns from the text as it reads it; compare it with dynamic models")
    return _report(out, names, fitted.weights.tolist(), perplexities, result, text_report)


def _require_one_store(members: list[Run]) -> None:
    for other_run in members[1:]:
        if other_run.store_fingerprint != members[0].store_fingerprint:
            raise UserError(
                f"{members[0].folder} and {other_run.folder} were trained on different stores: "
                "train them with the same data= settings to mix them"
            )


def _report(
    out: Path,
    names: list[str],
    weights: list[float],
    perplexities: Sequence[float | None],
    result: dict[str, Any],
    text_report: Report | None,
) -> float | None:
    """Write result.json and print the table of members and the report of the mixture; returns its perplexity, or that
    of the questions where no text was scored.
    """
    from lmtool.evaluation.printing import print_cloze, print_report
    from lmtool.evaluation.score import finite_or_null

    rows: list[list[Cell]] = [list(row) for row in zip(names, weights, perplexities, strict=True)]
    members = [finite_or_null(dict(zip(("run", "weight", "perplexity"), row, strict=True))) for row in rows]
    write_json(out / "result.json", result | {"weights": weights, "members": members})
    total = sum(weights)
    rows.append(["mixture", total, None if text_report is None else text_report.perplexity])
    print(text_table(["run", "weight", "perplexity"], rows))
    if text_report is None:
        cloze: dict[str, float] | None = result["cloze"]
        print_cloze(cloze)
        return None if cloze is None else cloze["perplexity"]
    print()
    print_report(text_report)
    return text_report.perplexity
