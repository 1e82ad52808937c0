"""`lmtool ensemble`: runs -> the perplexity of their mixture."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from lmtool.commands.surroundings import on_terminal, output_dir, plain, use_threads
from lmtool.config import EnsembleConfig, typed
from lmtool.files import write_json
from lmtool.tables import Cell, text_table


def run(composed: DictConfig) -> float | None:
    """Mix finished runs with given or fitted weights, score a split; returns the mixture's perplexity."""
    config = typed(composed, EnsembleConfig)
    import numpy as np

    from lmtool.build import load_model
    from lmtool.commands.questions import only_questions, score_questions
    from lmtool.commands.reports import print_report
    from lmtool.commands.stores import corpus_of
    from lmtool.ensemble import fit_weights, mix
    from lmtool.errors import UserError
    from lmtool.evaluation import (
        Scores,
        cloze_log_prob,
        finite_or_null,
        perplexity,
        report,
        score,
    )
    from lmtool.runs import Run
    from lmtool.scores.kept import SCORES_FILE, Kept, tokens_of

    use_threads(config.threads)
    out = output_dir()
    members = [Run.open(Path(folder)) for folder in config.runs]
    for other_run in members[1:]:
        if other_run.store_fingerprint != members[0].store_fingerprint:
            raise UserError(
                f"{members[0].folder} and {other_run.folder} were trained on different stores: "
                "train them with the same data= settings to mix them"
            )
    with corpus_of(members[0], config.store_dir) as corpus:
        models = [load_model(member, corpus.vocabulary) for member in members]
        text = None if only_questions(corpus, config.split) else corpus.split(config.split)
        scored = [] if text is None else [score(model, text, progress=on_terminal()) for model in models]
        weights = np.array(config.weights)
        if config.weights is None:
            fitted_on = scored
            if text is None or config.fit_split != config.split:
                fitted_on = [score(model, corpus.split(config.fit_split)) for model in models]
            fit = fit_weights(np.stack([found.log_prob for found in fitted_on]))
            weights = fit.weights
            print(f"EM on {config.fit_split}: {fit.iterations} steps, within {fit.gap:.1e} nats of the best")
            if config.fit_split == config.split:
                print(f"note: the weights were fitted on {config.split} itself; split=test scores other text")
        cloze = score_questions(
            corpus,
            config.split,
            out,
            lambda cloze: mix(np.stack([cloze_log_prob(m, cloze, corpus.vocabulary.bos) for m in models]), weights),
        )
        found = None
        if text is not None:
            mixed = Scores(mix(np.stack([s.log_prob for s in scored]), weights), sum(s.seconds for s in scored))
            found = report(config.split, text, mixed, cloze)
            normalised = all(getattr(model, "normalised", True) for model in models)
            Kept(mixed.log_prob, tokens_of(text, corpus.vocabulary), config.split, normalised).save(out / SCORES_FILE)
    Run(
        folder=out,
        kind="ensemble",
        config=plain(composed) | {"data": members[0].config["data"]},
        store=members[0].store,
        store_fingerprint=members[0].store_fingerprint,
        vocabulary_fingerprint=members[0].vocabulary_fingerprint,
        members=tuple(str(member.folder.resolve()) for member in members),
        weights=tuple(float(weight) for weight in weights),
    ).save()
    own: list[float | None] = [perplexity(s.log_prob) for s in scored]
    own = own or [None] * len(members)
    rows: list[list[Cell]] = [[str(m.folder), float(w), p] for m, w, p in zip(members, weights, own, strict=True)]
    named = [finite_or_null({"run": str(row[0]), "weight": row[1], "perplexity": row[2]}) for row in rows]
    result = {"split": config.split, "cloze": cloze} if found is None else found.as_json()
    write_json(out / "result.json", result | {"weights": [row[1] for row in rows], "members": named})
    print(
        text_table(
            ["run", "weight", "perplexity"], [*rows, ["mixture", 1.0, None if found is None else found.perplexity]]
        )
    )
    if found is None:
        return None
    print()
    print_report(found)
    return found.perplexity
